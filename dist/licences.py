#!/usr/bin/env python3
"""licences.py TARGET: prints the licences of every crate that is linked into the program for TARGET.

Each package is named once, with the files in which its authors keep its licences. A text that several packages
share is printed with the first of them. A package that has no such file, nor states its licence, is an error: the
archive may not be distributed.
"""

import json
import pathlib
import subprocess
import sys

NAMES = ("licen", "copying", "notice", "copyright", "unlicense")

# The libraries of C that are linked statically, by system.
RUNTIMES = {
    "linux": "musl (MIT, https://musl.libc.org)",
    "windows": "the runtimes of mingw-w64 (ZPL-2.1 and public domain, https://www.mingw-w64.org) and of GCC\n"
               "(GPL-3.0 with the runtime library exception, https://gcc.gnu.org)",
}


def main(target: str) -> int:
    cargo = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(cargo, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(package["id"] for package in metadata["packages"] if package["name"] == "encke")

    print("Encke contains these packages, under these licences; and, linked statically, the Rust standard library")
    print(f"(MIT or Apache-2.0, https://www.rust-lang.org) and {RUNTIMES['windows' if 'windows' in target else 'linux']}.\n")
    missing, first = [], {}
    for package in sorted((packages[linked] for linked in linked(root, nodes)), key=lambda one: (one["name"], one["version"])):
        if package["source"] is None:
            continue
        files = licence_files(pathlib.Path(package["manifest_path"]).parent)
        terms = package["license"]
        if not terms and not files:
            missing.append(package["name"])
        print(f"{'=' * 80}\n{package['name']} {package['version']}: {terms or 'see below'}")
        print("".join(f"by {author}\n" for author in package["authors"]))
        for file in files:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
            origin = first.setdefault(" ".join(text.split()), f"{package['name']} {package['version']}")
            if origin == f"{package['name']} {package['version']}":
                print(f"--- {file.name}\n\n{text}\n")
            else:
                print(f"--- {file.name}: the same text as in {origin}\n")
    if missing:
        print(f"licences.py: no licence is known of: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def linked(root: str, nodes: dict) -> set:
    """Returns the packages that `root` reaches by ordinary dependencies, without build and test dependencies."""
    found, open_ends = set(), [root]
    while open_ends:
        name = open_ends.pop()
        if name in found:
            continue
        found.add(name)
        for dependency in nodes[name]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_ends.append(dependency["pkg"])
    return found


def licence_files(folder: pathlib.Path) -> list:
    files = (file for file in folder.iterdir() if file.is_file() and file.name.lower().startswith(NAMES))
    return sorted(files)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("licences.py TARGET")
    sys.exit(main(sys.argv[1]))
