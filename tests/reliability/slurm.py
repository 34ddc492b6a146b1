"""A Slurm of one node on this machine: its own daemons, keys and ports, in a directory of its own; needs root."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from reliability.harness import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "squeue", "scancel", "scontrol", "sbatch")
CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={here}/munge.socket
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    absent = [name for name in PROGRAMS if found(name) is None]
    if absent:
        return f"no Slurm: {absent[0]} is not installed (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "no Slurm: its daemons need root"


def found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm:
    """munged, slurmctld and slurmd; `command` asks them something."""

    def __init__(self) -> None:
        self.here = Path(tempfile.mkdtemp(prefix="slurm"))  # a short path: it holds a socket
        self.host = socket.gethostname().split(".")[0]
        (self.here / "state").mkdir()
        (self.here / "spool").mkdir()
        key = self.here / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self.here.chmod(0o755)
        self.conf = self.here / "slurm.conf"
        self.conf.write_text(CONF.format(host=self.host, here=self.here, control=free_port(), node=free_port()))
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        names = ("key", "socket", "pid", "log", "seed")
        files = [f"--{name}{'' if name == 'socket' else '-file'}={self.here}/munge.{name}" for name in names]
        self.spawn("munged", "--foreground", "--force", *files)
        assert until((self.here / "munge.socket").exists, 20)
        self.start_controller()
        self.spawn("slurmd", "-D", "-f", self.conf, "-N", self.host)
        assert until(lambda: "idle" in self.command("sinfo", "-h", "-o", "%t"), 60, 0.2), self.log()

    def start_controller(self) -> None:
        self.spawn("slurmctld", "-D", "-f", self.conf)

    def restart_controller(self) -> None:
        """Stop the controller and start it again from its saved state.

        One that was killed would have forgotten the jobs of its last seconds and give their numbers to others, and
        Slurm then takes the node out of service until somebody resumes it.
        """
        self.daemons["slurmctld"].terminate()
        self.daemons["slurmctld"].wait(60)
        self.start_controller()

    def spawn(self, name: str, *arguments: object) -> None:
        program = found(name)
        assert program is not None
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.daemons[name] = subprocess.Popen([program, *map(str, arguments)], env=self.env, **quiet)

    def command(self, *arguments: str) -> str:
        return subprocess.run(arguments, env=self.env, capture_output=True, text=True, timeout=60).stdout

    def jobs(self, state: str = "RUNNING") -> list[str]:
        return self.command("squeue", "-h", "-t", state, "-o", "%i").split()

    def log(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.here.glob("*.log"))

    def stop(self) -> None:
        for job in self.command("squeue", "-h", "-o", "%i").split():
            self.command("scancel", job)
        until(lambda: not self.command("squeue", "-h").strip(), 20, 0.2)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.here, ignore_errors=True)
