"""Remote workers, the client and the MCP server, against a real service."""
