"""The fleets that a scenario is compared on."""

from codedfl.scenario import load
from codedfl.studies.compare import fleets_of
from rundirs import small


class TestFleets:
    def test_of_the_paper(self) -> None:
        fleets = fleets_of(load("paper"))
        assert list(fleets) == ["paper", "homogeneous", "heavy-tailed"]
        for name, scenario in fleets.items():
            assert scenario.with_settings({"name": name}) == load(name)

    def test_of_the_quick_scenario_keep_its_data(self) -> None:
        quick = load("paper-quick")
        fleets = fleets_of(quick)
        assert list(fleets) == ["paper", "homogeneous", "heavy-tailed"]
        for scenario in fleets.values():
            assert (scenario.data, scenario.features, scenario.training) == (quick.data, quick.features, quick.training)
            assert scenario.options("code-based") == quick.options("code-based")
        assert fleets["heavy-tailed"].fleet.devices == load("heavy-tailed").fleet.devices

    def test_of_another_fleet_and_what_goes_with_each(self) -> None:
        own = fleets_of(small())
        assert {name: scenario.fleet.size for name, scenario in own.items()} == {
            "small": 5,
            "homogeneous": 25,
            "heavy-tailed": 120,
        }
        tail = fleets_of(load("heavy-tailed"))
        assert {name: scenario.options("drop-slowest").to_table() for name, scenario in tail.items()} == {
            "heavy-tailed": {"wait_for": 96},
            "homogeneous": {"wait_for": 20},
            "paper": {"wait_for": 20},
        }
