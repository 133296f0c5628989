"""Tools of other programs, by the Model Context Protocol. `mcp` is imported when a server is started, and not before."""
