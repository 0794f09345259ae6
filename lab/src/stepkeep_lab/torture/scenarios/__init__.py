"""One function per fault: it injects the fault for a while; the stage audits the result."""
