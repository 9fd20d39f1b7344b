"""What the cameras' broker refused is counted, and told once per sender."""

from pathlib import Path

from farmiq.cloud.camera.gateway import jobs
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker.follow import Follower

LINE = (
    '[1] 2026/11/15 12:51:03.252939 [ERR] 10.0.0.{}:48631 - mid:40 - "cam" - '
    'Publish Violation - Subject "device.AABBCCDDEE02.data"\n'
)


async def test_a_camera_on_anothers_topic_is_counted_each_time_and_told_once(
    tmp_path: Path,
) -> None:
    log = tmp_path / "broker.log"
    log.write_text(LINE.format(1))
    watch = jobs.BrokerWatch(Follower(log))
    counter = jobs.BROKER_REJECTED.labels(kind=broker_log.PERMISSION)
    before = counter._value.get()
    for _ in range(2):
        with log.open("a") as opened:
            opened.writelines(LINE.format(n) for n in range(300))
        assert await watch.check_rejections() == {"refusals": 300, "skipped": 0}
    assert counter._value.get() - before == 600
    assert len(watch._senders) == jobs.MAX_SENDERS
    assert await watch.check_rejections() == {}
