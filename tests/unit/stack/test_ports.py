"""Choosing ports."""

import socket

import pytest

from farmiq.lab.stack import StackError, engines, ports


def test_blocks_stay_below_the_ports_of_outgoing_connections() -> None:
    assert max(ports.blocks(32_768)) + ports.BLOCK <= 32_768
    assert min(ports.blocks(32_768)) == ports.LOWEST


def test_blocks_exist_even_where_nearly_all_ports_are_for_outgoing_connections() -> None:
    assert ports.blocks(1_024)


def test_every_name_has_its_own_port_and_the_first_is_the_guards() -> None:
    layout = ports.layout(20_000, engines.PORTS)

    assert len(set(layout.values())) == len(engines.PORTS)
    assert 20_000 not in layout.values()
    assert max(layout.values()) < 20_000 + ports.BLOCK


def test_more_names_than_a_block_holds_are_refused() -> None:
    with pytest.raises(StackError, match="do not fit"):
        ports.layout(20_000, [f"port-{number}" for number in range(ports.BLOCK)])


def test_the_block_used_before_is_used_again() -> None:
    with ports.reserved(["a"], ["a"], before=None) as base:
        pass
    with ports.reserved(["a"], ["a"], before=base) as again:
        assert again == base


def test_port_block_of_a_starting_stack_is_not_given_twice() -> None:
    with (
        ports.reserved(["a"], ["a"], before=None) as base,
        ports.reserved(["a"], ["a"], before=base) as other,
    ):
        assert other != base


def test_a_taken_port_means_another_block_but_only_if_it_is_needed() -> None:
    with ports.reserved(["a", "b"], ["a", "b"], before=None) as base:
        pass
    with socket.create_server(("127.0.0.1", ports.layout(base, ["a", "b"])["b"])):
        with ports.reserved(["a", "b"], ["a", "b"], before=base) as other:
            assert other != base
        with ports.reserved(["a", "b"], ["a"], before=base) as same:
            assert same == base
