#!/usr/bin/python3
"""Checks that the files for Compose and Kubernetes are consistent with each other and with the settings that they mount.

Starts no container. Compares names that must match, and runs `encke check` on the settings that containers mount.
usage: orchestration.py ENCKE
"""
# Debian's own Python, because it has python3-yaml.
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import yaml

DIST = Path(__file__).resolve().parent
COMPOSE, KUBERNETES = DIST / "compose", DIST / "kubernetes"
# A container has this much time beyond the drain's before it is killed.
SPARE_SECONDS = 5


class Strict(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys: the second would silently win."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        doubled = {key for key in keys if keys.count(key) > 1}
        if doubled:
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(doubled)} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


class Found(Exception):
    """Something does not hold."""


def holds(truth: object, what: str) -> None:
    if not truth:
        raise Found(what)


def documents(path: Path) -> list[dict]:
    return list(yaml.load_all(path.read_text(), Strict))


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m)", text).groups()
    return float(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def settings(folder: Path) -> dict:
    return tomllib.loads((folder / "encke.toml").read_text())


def port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def drains_in_time(of: dict, given_seconds: float, where: str) -> None:
    drain = sum(seconds(of["server"][name]) for name in ("drain_delay", "drain_time"))
    holds(given_seconds >= drain + SPARE_SECONDS, f"{where}: {given_seconds} s are too few for a drain of {drain} s")


def compose() -> None:
    [whole] = documents(COMPOSE / "compose.yaml")
    services, volumes = whole["services"], whole["volumes"]
    for name, service in services.items():
        where = f"compose.yaml: {name}"
        after = service.get("depends_on", [])
        holds(set(after) <= set(services), f"{where} waits for {sorted(set(after) - set(services))}")
        waits = after.items() if isinstance(after, dict) else []
        healthy = [other for other, how in waits if how["condition"] == "service_healthy"]
        holds(all("healthcheck" in services[other] for other in healthy), f"{where} waits for health that nobody checks")
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            there = (COMPOSE / source).exists() if source.startswith(".") else source in volumes
            holds(there, f"{where}: {source} is not there")
    nodes = {name: service for name, service in services.items() if name.startswith("encke-")}
    servers = {name for name in services if name.startswith("nats-")}
    of = settings(COMPOSE)
    for name, service in nodes.items():
        drains_in_time(of, seconds(service["stop_grace_period"]), f"compose.yaml: {name}")
        holds(set(service["depends_on"]) == servers, f"compose.yaml: {name} waits for all of {sorted(servers)}")
        holds("ENCKE_NATS_PASSWORD" in service["environment"], f"compose.yaml: {name} gets no password")
    holds({f"nats://{name}:4222" for name in servers} == set(of["cluster"]["nats"]), "encke.toml names other NATS servers")
    holds(of["cluster"]["replicas"] <= len(servers), "encke.toml: more replicas than servers")
    balancer = (COMPOSE / "haproxy.cfg").read_text()
    told = dict(re.findall(r"^\s*server (\S+) (\S+)", balancer, re.MULTILINE))
    expected = {name: f"{name}:{port(of['server']['listen'])}" for name in nodes}
    holds(told == expected, f"haproxy.cfg has {told}, and there are {expected}")
    checked = int(re.search(r"check port (\d+)", balancer).group(1))
    holds(checked == port(of["server"]["admin"]["address"]), f"haproxy.cfg asks port {checked} for /readyz")
    holds("option httpchk GET /readyz" in balancer, "haproxy.cfg does not ask whether a node is ready")


def kubernetes() -> None:
    objects = {one["kind"]: one for one in documents(KUBERNETES / "encke.yaml")}
    deployment, service, budget = (objects[kind]["spec"] for kind in ("Deployment", "Service", "PodDisruptionBudget"))
    template, of = deployment["template"], settings(KUBERNETES)
    pod, labels = template["spec"], template["metadata"]["labels"]
    spread = [one["labelSelector"]["matchLabels"] for one in pod["topologySpreadConstraints"]]
    for selector in [deployment["selector"]["matchLabels"], service["selector"], budget["selector"]["matchLabels"], *spread]:
        holds(selector.items() <= labels.items(), f"encke.yaml: {selector} selects no pod with {labels}")
    [container] = pod["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    expected = {"http": port(of["server"]["listen"]), "admin": port(of["server"]["admin"]["address"])}
    holds(ports == expected, f"encke.yaml has the ports {ports}, and encke.toml {expected}")
    holds(all(one["targetPort"] in ports for one in service["ports"]), "encke.yaml: the service asks at no port of a pod")
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        holds(container[probe]["httpGet"] == {"path": path, "port": "admin"}, f"encke.yaml: {probe} is not {path} of admin")
    drains_in_time(of, pod["terminationGracePeriodSeconds"], "encke.yaml")
    looked_away = container["readinessProbe"]["periodSeconds"] * container["readinessProbe"]["failureThreshold"]
    holds(seconds(of["server"]["drain_delay"]) > looked_away, "encke.toml: drain_delay ends before the probe has failed")
    holds(budget["maxUnavailable"] < deployment["replicas"], "encke.yaml: the budget allows that no pod is left")
    volumes = {one["name"] for one in pod["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    holds(set(mounts) == volumes, f"encke.yaml mounts {sorted(mounts)} of {sorted(volumes)}")
    holds(container["args"][-1] == mounts["settings"] + "/encke.toml", "encke.yaml: it is started with other settings")
    holds(of["cluster"]["password"]["file"].startswith(mounts["nats"] + "/"), "encke.toml: the password is not mounted there")
    holds(of["site"][0]["root"] == mounts["site"], "encke.toml: the site is not mounted there")

    [custom] = documents(KUBERNETES / "kustomization.yaml")
    holds(all((KUBERNETES / name).exists() for name in custom["resources"]), "kustomization.yaml: a resource is not there")
    [generated] = custom["configMapGenerator"]
    [config] = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
    holds(generated["name"] == config and all((KUBERNETES / name).exists() for name in generated["files"]),
          "kustomization.yaml makes other settings than encke.yaml mounts")
    holds(custom["images"][0]["name"] == container["image"], "kustomization.yaml names another image")

    [values] = documents(KUBERNETES / "nats.values.yaml")
    [secret] = [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one]
    password = values["container"]["env"]["NATS_PASSWORD"]["valueFrom"]["secretKeyRef"]
    holds((password["name"], password["key"]) == (secret, Path(of["cluster"]["password"]["file"]).name),
          "nats.values.yaml: NATS has another password than the nodes")
    holds(values["config"]["merge"]["authorization"]["user"] == of["cluster"]["user"], "nats.values.yaml: another user")
    holds(of["cluster"]["replicas"] <= values["config"]["cluster"]["replicas"], "encke.toml: more replicas than servers")


def asked(argv: list[str], **environment: str) -> None:
    done = subprocess.run(argv, env=os.environ | environment, capture_output=True, text=True, check=False)
    holds(done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}")


def programs(encke: str) -> None:
    """Runs `encke check` on the settings of both deployments."""
    with tempfile.TemporaryDirectory() as here:
        secret = Path(here) / "password"
        secret.write_text("a password\n")
        for folder in (COMPOSE, KUBERNETES):
            text = (folder / "encke.toml").read_text()
            mine = Path(here) / f"{folder.name}.toml"
            mine.write_text(text.replace("/srv/encke", here).replace("/run/secrets/nats/password", str(secret)))
            asked([encke, "check", str(mine)], ENCKE_NATS_PASSWORD="p1234")
        asked(["nats-server", "-t", "-c", str(COMPOSE / "nats.conf")], NATS_PASSWORD="p1234")
        asked(["haproxy", "-c", "-f", str(COMPOSE / "haproxy.cfg")], PATH=os.environ["PATH"] + ":/usr/sbin")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        compose()
        kubernetes()
        programs(sys.argv[1])
    except (Found, yaml.YAMLError, tomllib.TOMLDecodeError, KeyError) as fault:
        print(f"orchestration.py: {type(fault).__name__}: {fault}", file=sys.stderr)
        return 1
    print("orchestration.py: the files for Compose and Kubernetes hold together")
    return 0


if __name__ == "__main__":
    sys.exit(main())
