#!/usr/bin/env bash
# Checks the manifest of examples/cluster against Kubernetes' own schemas, of version 1.31 and of the
# newest, and that these schemas refuse a misspelt key.
set -euo pipefail
skip() { echo "skipped: $*"; exit 77; }
python=$SRC/build/cluster-venv/bin/python
"$python" -c 'import kubernetes_validate' 2>/dev/null ||
  skip "the schemas of Kubernetes are not here (tools/setup.sh --cluster)"
"$python" - "$SRC/examples/cluster/kubernetes.yaml" <<'EOF'
import copy
import sys
import kubernetes_validate as kubernetes
import yaml

service, job = yaml.safe_load_all(open(sys.argv[1]))
for version in "1.31", kubernetes.latest_version():
    for document in service, job:
        kubernetes.validate(document, version, strict=True)
    for spoil in (lambda spec: spec.update(completionmode="Indexed"),
                  lambda spec: spec.update(completions="four"),
                  lambda spec: spec["podFailurePolicy"]["rules"][0].pop("action")):
        spoilt = copy.deepcopy(job)
        spoil(spoilt["spec"])
        try:
            kubernetes.validate(spoilt, version, strict=True)
        except kubernetes.ValidationError:
            continue
        sys.exit(f"the schema of {version} takes a manifest that is wrong")

# Relations between keys that no schema states.
spec = job["spec"]
pod = spec["template"]["spec"]
container, = pod["containers"]
variables = {each["name"]: each.get("value") for each in container["env"]}
assert spec["completions"] == spec["parallelism"] == int(variables["WORLD_SIZE"])
assert pod["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None"
assert variables["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}"
assert int(variables["MASTER_PORT"]) == service["spec"]["ports"][0]["port"]
assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
for rule in spec["podFailurePolicy"]["rules"]:
    assert rule.get("onExitCodes", {}).get("containerName", container["name"]) == container["name"]
print("kubernetes: the manifest is right by the schemas of 1.31 and", kubernetes.latest_version())
EOF
