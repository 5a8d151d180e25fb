"""Progress bars with rates in the terminal."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text


class RateColumn(TextColumn):
    """Units per second since the work began."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed:,.0f} {task.fields['unit']}/s", style="cyan")


class RichDisplay:
    """One bar per piece of work while it runs; a bar that is done disappears, the stage's numbers are in MLflow."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", style="bold"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> "RichDisplay":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, label: str, unit: str) -> int:
        return int(self._progress.add_task(label, total=None, unit=unit))

    def update(self, handle: int, done: int, total: int) -> None:
        self._progress.update(TaskID(handle), completed=done, total=total)

    def end(self, handle: int) -> None:
        self._progress.remove_task(TaskID(handle))
