"""MLflow is not there, dies, or hangs: training goes on, and what MLflow missed is delivered later, once.

``igrpo repair-lineage`` delivers; so does the next iteration.
"""

from flows.servers import free_port
from tests.chaos.bench import Bench, Findings
from tests.chaos.runs import Subject
from tests.chaos.servers import HOST, Server, Silent

MAX_EXTRA_SECONDS = 180.0
"""How much longer than an undisturbed run one may take whose MLflow does not answer."""


def _delivered(bench: Bench, subject: Subject, found: Findings) -> list[str]:
    """Deliver twice: the second time must add nothing."""
    for _ in range(2):
        found.ended("delivering what MLflow missed", subject.run("repair-lineage", "small"), 0)
    return found + bench.as_undisturbed(subject)


def not_there(bench: Bench) -> list[str]:
    """The run warns and ends well; once there is an MLflow, everything is recorded in it exactly once."""
    found = Findings()
    subject = bench.subject("no-mlflow", MLFLOW_TRACKING_URI=f"http://{HOST}:{free_port()}")
    done = subject.run()
    found.ended("without MLflow", done, 0, "MLflow")
    limit = bench.straight(subject.arguments).seconds + MAX_EXTRA_SECONDS
    found.expect(done.seconds < limit, f"it took {done.seconds:.0f} s, more than {limit:.0f} s")
    del subject.env["MLFLOW_TRACKING_URI"]
    return _delivered(bench, subject, found)


def dies(bench: Bench) -> list[str]:
    """MLflow's server is killed in the middle of the run, which warns and ends well; then everything is recorded exactly once."""
    found = Findings()
    subject = bench.subject("dying-mlflow")
    server = Server("mlflow", subject.store)
    server.start()
    try:
        subject.env["MLFLOW_TRACKING_URI"] = server.url
        running = subject.start()
        is_alive = running.sleep_until(bench.straight(subject.arguments).seconds * 0.7)
        found.expect(is_alive and server.kill() > 0, "the run was over before the server was killed")
        found.ended("with a dead MLflow", running.end(), 0)
        server.start()
        return _delivered(bench, subject, found)
    finally:
        server.stop()


def hangs(bench: Bench) -> list[str]:
    """MLflow takes connections and never answers: the run loses a bounded time, warns and ends well; then as above."""
    found, silent = Findings(), Silent()
    subject = bench.subject("hanging-mlflow", MLFLOW_TRACKING_URI=silent.url)
    done = subject.run()
    silent.close()
    found.ended("with a hanging MLflow", done, 0, "MLflow")
    found.expect(silent.num_connections > 0, "nobody asked it")
    limit = bench.straight(subject.arguments).seconds + MAX_EXTRA_SECONDS
    found.expect(done.seconds < limit, f"it took {done.seconds:.0f} s, more than {limit:.0f} s")
    del subject.env["MLFLOW_TRACKING_URI"]
    return _delivered(bench, subject, found)
