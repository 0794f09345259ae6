"""What limits what runs: slots, resources, pauses."""
