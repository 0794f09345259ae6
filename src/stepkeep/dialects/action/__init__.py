"""The action dialect (seed 003): WorkflowV1 documents, actions with tokens and compensation hooks, evidence."""
