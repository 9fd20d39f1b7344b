"""`farmiq demo` and `farmiq smoke`: the whole system on this machine."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from farmiq.cli import terminal


def demo(
    *,
    barns: Annotated[int, typer.Option(min=1, max=100)] = 4,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between readings.")] = 1.0,
) -> None:
    """Run the whole system here with a simulated farm; Ctrl-C stops all of it.

    In a terminal, keys cut the link to the cloud, kill the edge and freeze its database; whatever
    dies is started again, and a check says that nothing was lost.
    """
    say = terminal.progress()
    try:
        from farmiq.lab.demo import run as demo_run
        from farmiq.lab.demo import view

        _with_engines(
            "demo",
            lambda engines: demo_run.demo(
                engines, barns=barns, interval_s=interval, say=say, show=view.show
            ),
            say=say,
        )
    except KeyboardInterrupt:
        # That is how a demo ends.
        say("stopped")


def smoke(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long the farm sends.")] = 45.0,
) -> int:
    """Run the demo's farm for a while without a terminal, then check: 0 lost, 0 twice.

    Prints one summary line; the exit code tells.
    """
    from farmiq.lab.demo import run as demo_run

    say = terminal.progress()
    good, summary = _with_engines(
        "smoke",
        lambda engines: demo_run.smoke(engines, seconds=seconds, say=say),
        afresh=True,
        say=say,
    )
    terminal.print_result({"good": good, "summary": summary}, summary)
    return 0 if good else 1


def _with_engines(
    name: str,
    work: Callable[[Any], Any],
    *,
    say: Callable[[str], None],
    afresh: bool = False,
) -> Any:
    """Start the engines, run `work` on them, stop them; a signal ends it at any moment."""
    import signal

    from farmiq import config as settings
    from farmiq.lab import stack

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = terminal.state_dir() / "stacks" / name
    try:
        if afresh:
            stack.stop(root)
            stack.remove(root)
        given = settings.given_urls()
        with stack.start(root, given=given, say=say, shared_login=False) as engines:
            stack.announce(engines.root)
            try:
                return asyncio.run(_until_stopped(work(engines)))
            finally:
                say("stopping the engines")
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_stopped(work: Any) -> Any:
    """SIGTERM cancels like Ctrl-C: an exception raised wherever a signal finds us may get lost."""
    import signal

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - we are one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
