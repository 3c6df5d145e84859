"""What a run found, shown: tables, live progress, lineage, comparison, HTML; from JSON documents only."""
