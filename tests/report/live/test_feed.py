"""The feed: the newest state for every browser, whole at first, then what is new."""

import json
from typing import Any

from codedfl.report.live.feed import Feed


def table(count: int, version: str = "a") -> dict[str, Any]:
    return {"epochs": [[i, float(i), 0.5] for i in range(1, count + 1)], "epochs_version": version, "devices": []}


def polled(poll: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in poll()]


def test_a_browser_gets_the_newest_state_and_none_in_between() -> None:
    feed = Feed()
    poll = feed.follow()
    assert [event["phase"] for event in polled(poll)] == ["starting"]
    assert list(poll()) == []
    for count in range(1, 100):
        feed.publish(phase="training", run=table(count))
    (event,) = polled(poll)
    assert len(event["run"]["epochs"]) == 99
    assert event["run"]["first_row"] == 0


def test_only_new_epochs_are_sent_until_earlier_ones_change() -> None:
    feed = Feed()
    poll = feed.follow()
    feed.publish(run=table(3))
    poll()
    feed.publish(run=table(5))
    (event,) = polled(poll)
    assert ([row[0] for row in event["run"]["epochs"]], event["run"]["first_row"]) == ([4, 5], 3)
    feed.publish(run=table(4, "b"))
    (event,) = polled(poll)
    assert ([row[0] for row in event["run"]["epochs"]], event["run"]["first_row"]) == ([1, 2, 3, 4], 0)
    (late,) = polled(feed.follow())
    assert late["run"] == event["run"], "who comes later has it all"


def test_a_stream_ends_after_the_last_state() -> None:
    feed = Feed()
    poll = feed.follow()
    assert not feed.followed.is_set()
    feed.publish(phase="finished", result={"score": float("nan")})
    (event,) = polled(poll)
    assert (event["phase"], event["result"]) == ("finished", {"score": None})
    assert feed.followed.is_set()
    assert poll() is None


def test_names_cannot_end_a_script_or_an_event() -> None:
    feed = Feed()
    feed.publish(note="</script>\n\ndata: x & \u2028")
    (text,) = feed.follow()()
    assert "<" not in text
    assert "\n" not in text
    assert json.loads(text)["note"] == "</script>\n\ndata: x & \u2028"


def test_browsers_pull_a_table_as_it_is_now_until_the_end() -> None:
    feed, count = Feed(), 1
    poll = feed.follow()
    feed.pull_from(lambda: table(count))
    (event,) = polled(poll)
    assert (event["phase"], len(event["run"]["epochs"])) == ("training", 1)
    feed._pulled = -1.0
    assert list(poll()) == [], "nothing has changed"
    count = 3
    feed._pulled = -1.0
    (event,) = polled(poll)
    assert [row[0] for row in event["run"]["epochs"]] == [2, 3]
    count = 4
    feed.pull_from(None)
    (event,) = polled(poll)
    assert [row[0] for row in event["run"]["epochs"]] == [4], "the last state"
    count = 5
    feed._pulled = -1.0
    assert list(poll()) == []
