"""`make bench`: every benchmark, at least three rounds, medians and ratios."""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from bench import ingest
from bench.ingest import Round
from farmiq import config, stack
from farmiq.plumbing import log, migrations
from farmiq.process import SQL


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON for a script")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=5000, help="messages per measurement")
    options = parser.parse_args()
    log.configure("error")
    say: Callable[[str], None] = (lambda _: None) if options.json else print
    rounds = asyncio.run(_rounds(options.rounds, options.events, say))
    results = _results(rounds)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _print(results)
    sys.exit(0)


async def _rounds(rounds: int, events: int, say: Callable[[str], None]) -> list[Round]:
    root = config.state_dir() / "stacks" / "bench"
    found = []
    with stack.start(root, engines=("postgres-edge", "mqtt-edge"), say=say) as engines:
        migrations.apply(engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"], SQL["edge"])
        await ingest.register(engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"])
        for number in range(1, rounds + 1):
            one = await ingest.measure(engines, events=events, few=max(200, events // 10))
            say(
                f"round {number}: ceiling {one.ceiling:,.0f}/s, ours {one.ours:,.0f}/s, "
                f"one by one {one.one_by_one:,.0f}/s"
            )
            found.append(one)
    stack.remove(root)
    return found


def _results(rounds: list[Round]) -> list[dict[str, Any]]:
    return [
        _result("ingest / same client without a database", [r.ours / r.ceiling for r in rounds]),
        _result("ingest / one transaction per message", [r.ours / r.one_by_one for r in rounds]),
    ]


def _result(what: str, ratios: list[float]) -> dict[str, Any]:
    return {
        "what": what,
        "value": round(statistics.median(ratios), 3),
        "runs": [round(ratio, 3) for ratio in ratios],
        "detail": {"broker": "NATS, fsync per message", "receipts": "on"},
    }


def _print(results: list[dict[str, Any]]) -> None:
    for result in results:
        spread = f"{min(result['runs'])} to {max(result['runs'])}"
        print(f"{result['what']:<42} {result['value']:>8} (rounds: {spread})")


if __name__ == "__main__":
    main()
