"""What the palette finds: commands in whose name or description each typed word stands, not its letters here and there."""

import re

from textual.command import Hit, Hits
from textual.content import Content
from textual.system_commands import SystemCommandsProvider


class CommandsByWord(SystemCommandsProvider):
    """Finds the chat's commands for Textual's palette."""

    async def search(self, query: str) -> Hits:
        """Yield the commands that have every word of a query, those first that have one early."""
        words = query.lower().split()
        for title, about, run, _ in self.app.get_system_commands(self.screen):
            places = [title.lower().find(word) for word in words]
            if places and min(places) >= 0:
                found = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
                shown = Content(title).highlight_regex(found, style=self.match_style or "bold")
                yield Hit(1 / (1 + min(places)), shown, run, help=about)
