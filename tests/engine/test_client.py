"""The client that collects notices."""

from localspec.chat.events import Withheld
from localspec.engine.client import EngineClient
from localspec.engine.protocol import ReplyEvents
from localspec.messages import Message


def test_what_is_withheld_of_an_aside_is_held_nowhere() -> None:
    engine = EngineClient()
    answer = engine.ask([Message.user("the mail?")])
    aside = engine.ask([Message.user("the mail?")], ephemeral=True)
    mails = {
        number: Withheld("mail", f"{number}@example.org", "[mail]") for number in (answer, aside)
    }
    for number, withheld in mails.items():
        engine._deliver(ReplyEvents(number, (withheld,)))
    assert engine.withheld == [mails[answer]]
