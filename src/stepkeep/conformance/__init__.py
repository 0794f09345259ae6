"""The judge: reads the record alone and says whether what happened was legal."""
