#!/usr/bin/env python3
"""zip.py FOLDER FILE: packs a directory as a zip, under its own name.

The same files and SOURCE_DATE_EPOCH give the same bytes: names are sorted, times are the commit's in UTC, and there are no owners.
"""

import os
import pathlib
import sys
import time
import zipfile

# A zip counts years from 1980, and seconds in steps of two.
EPOCH_MIN = 315_532_800
# The mode of files and programs on Unix; "made on Unix" is 3 (APPNOTE.TXT 4.4.2).
MODE, UNIX = 0o644 << 16, 3


def main(folder: pathlib.Path, archive: pathlib.Path) -> None:
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), EPOCH_MIN)
    moment = time.gmtime(epoch)[:6]
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.as_posix().encode())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), moment)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, UNIX, MODE
            packed.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
