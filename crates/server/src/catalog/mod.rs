//! What drivers and tools ask about names: `pg_catalog` and `information_schema`.
