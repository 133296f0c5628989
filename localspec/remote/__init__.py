"""Remote: any server that speaks OpenAI's interface, as an engine. Its own process, so that no pass of a screen waits for a network."""
