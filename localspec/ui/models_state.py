"""ModelsState: what the models evaluated of a conversation is kept when it is left, and put back when it is taken up."""

from pathlib import Path

from localspec.engine.client import EngineClient
from localspec.ui.engine_state import EngineState, Phase
from localspec.ui.talk import Talk


class ModelsState:
    """The engine's cache of the conversation that is shown, as files beside the history.

    Args:
        engine: writes and reads them.
        talk: the conversation.
        state: what is known of the engine.
    """

    def __init__(self, engine: EngineClient, talk: Talk, state: EngineState) -> None:
        self._engine, self._talk, self._state = engine, talk, state

    def save(self) -> None:
        """Have the engine keep what it evaluated for this conversation."""
        directory = self._directory()
        if directory is not None and self._talk.messages and self._state.phase is Phase.READY:
            self._engine.save_state(str(directory))

    def restore(self) -> None:
        """Have the engine put back what it evaluated for this conversation, where it fits.

        It waits its turn, behind a load and before whatever is asked next.
        """
        if self._talk.conversation is None or self._state.phase in {Phase.IDLE, Phase.DEAD}:
            return
        directory = self._directory()
        if directory is not None and directory.is_dir():
            self._engine.restore_state(str(directory))
        if self._talk.messages:
            self._engine.count(self._talk.turns(self._talk.messages[-1].id))

    def _directory(self) -> Path | None:
        conversation = self._talk.conversation
        return None if conversation is None else self._talk.history.state_directory(conversation)
