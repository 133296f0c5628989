"""An Assistant in a process of its own: protocol, server, client."""
