"""Published definitions: versions, schemas, and what a change of one means for live runs."""
