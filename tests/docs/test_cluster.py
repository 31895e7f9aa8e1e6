"""The page about clusters, and its job files, each read by a parser of its format."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launch import settings
from tests.docs import pages

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "docs" / "jobs"
PROGRAM = "minigrad.examples.distributed"


def test_the_pages_program_prints_what_it_says():
    found = pages.blocks((ROOT / "docs" / "cluster.md").read_text())
    (program,) = [block.text for block in found if block.language == "python"]
    (output,) = [block.text for block in found if block.language == "text"]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=settings(PYTHONPATH=str(ROOT)),
        check=False,
    )
    assert done.stdout == output, done.stderr


# --- Slurm


def duration(text: str) -> int:
    """Minutes of one of Slurm's forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not found:
        raise ValueError(text)
    days, *rest = found.groups()
    values = [int(part or 0) for part in rest]
    if days is None and found[4] is None:
        return values[0]
    return int(days or 0) * 1440 + values[0] * 60 + values[1]


def sbatch(script: str) -> argparse.Namespace:
    """The options in a script's #SBATCH lines; ValueError for what sbatch would not read."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for short, name, kind in (
        ("-J", "job-name", str),
        ("-N", "nodes", int),
        (None, "ntasks-per-node", int),
        ("-c", "cpus-per-task", int),
        (None, "mem", re.compile(r"\d+[KMGT]?").fullmatch),
        ("-t", "time", duration),
        ("-o", "output", str),
    ):
        parser.add_argument(*([short] if short else []), f"--{name}", type=kind, required=True)
    parser.add_argument("--requeue", action="store_true")
    lines = script.splitlines()
    if not lines[0].startswith("#!"):
        raise ValueError("sbatch needs a first line #!")
    words, begun = [], False
    for line in lines[1:]:
        if line.startswith("#SBATCH"):
            if begun:
                raise ValueError(f"sbatch reads no option after the first command: {line}")
            words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
        begun = begun or bool(line.strip() and not line.startswith("#"))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        raise ValueError(f"unknown options {unknown}")
    return options


def test_the_slurm_script():
    script = (JOBS / "train.sbatch").read_text()
    options = sbatch(script)
    assert (options.nodes, options.ntasks_per_node, options.cpus_per_task) == (2, 4, 4)
    assert options.time == 240
    subprocess.run(["bash", "-n", JOBS / "train.sbatch"], check=True)
    assert f'mpiexec -n "$SLURM_NTASKS" python -m {PROGRAM} ' in script
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert "two nodes with four ranks of four threads each" in page


def test_the_slurm_parser_finds_mistakes():
    script = (JOBS / "train.sbatch").read_text()
    for wrong in (
        script.replace("--nodes=2", "--node=2"),
        script.replace("--nodes=2", "--nodes=two"),
        script.replace("04:00:00", "4 hours"),
        script.replace("#!/bin/bash\n", ""),
        script.replace("#SBATCH --requeue", "true\n#SBATCH --requeue"),
    ):
        with pytest.raises((ValueError, argparse.ArgumentError, SystemExit)):
            sbatch(wrong)


# --- a hostfile


def hosts(text: str) -> dict[str, int]:
    """The ranks of each host of a hostfile of mpiexec; ValueError for a wrong line."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line:
            match = re.fullmatch(r"([A-Za-z0-9][\w.-]*)(?::(\d+))?", line)
            if not match or match[1] in found:
                raise ValueError(f"hostfile: {line!r}")
            found[match[1]] = int(match[2] or 1)
    return found


def test_the_hostfile():
    assert hosts((JOBS / "hosts").read_text()) == {"node1": 4, "node2": 4}
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert f"mpiexec -f docs/jobs/hosts -n 8 python -m {PROGRAM} " in page
    for wrong in ("node 1:4", "node1:4\nnode1:4", "node1:four"):
        with pytest.raises(ValueError, match="hostfile"):
            hosts(wrong)


@pytest.mark.needs("mpi4py")
def test_mpiexec_reads_the_hostfile(tmp_path):
    """With the names of this machine in place of the two."""
    text = (JOBS / "hosts").read_text().replace("node1", "localhost").replace("node2", "127.0.0.1")
    (tmp_path / "hosts").write_text(text)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-launcher", "fork", "-f", tmp_path / "hosts", "-n", "8"]
    done = subprocess.run([*command, "echo", "here"], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["here"] * 8, done.stderr


# --- Kubernetes


@pytest.mark.needs("yaml")
def test_the_mpi_job():
    import yaml

    job = yaml.safe_load((JOBS / "mpijob.yaml").read_text())
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"}
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert set(spec) <= {
        *("slotsPerWorker", "runPolicy", "sshAuthMountPath", "launcherCreationPolicy"),
        *("mpiImplementation", "mpiReplicaSpecs", "runLauncherAsWorker"),
    }
    assert spec["mpiImplementation"] == "MPICH"
    assert spec["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
    assert spec["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    replicas = spec["mpiReplicaSpecs"]
    assert set(replicas) == {"Launcher", "Worker"}
    ranks = replicas["Worker"]["replicas"] * spec["slotsPerWorker"]
    for name, part in replicas.items():
        pod = part["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            assert {"name", "image", "command", "args", "resources"} <= set(container), name
            assert all(isinstance(word, str) for word in container["command"] + container["args"])
            mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
            assert mounted <= volumes
            limits = container["resources"]["limits"]
            assert all(isinstance(limits[key], str) for key in ("cpu", "memory"))
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    words = launcher["command"] + launcher["args"]
    assert words[:6] == ["mpiexec", "-n", str(ranks), "python", "-m", PROGRAM]
