//! SHOW CREATE TABLE says what makes the same table.

use uplake_engine::Session;

use crate::arrays::rows;
use crate::{block_on, session};

fn shown(session: &Session, table: &str) -> String {
    let [row] =
        <[String; 1]>::try_from(rows(session, &format!("SHOW CREATE TABLE {table}"))).unwrap();
    row.split_once('|').unwrap().1.trim_end_matches('|').to_owned()
}

#[test]
fn what_is_shown_makes_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 256 << 20, 2);
    for (table, sql) in [
        ("plain", "CREATE TABLE plain (a INT, b TEXT NOT NULL)"),
        (
            "types",
            "CREATE TABLE types (a BIGINT, b SMALLINT, c TINYINT, d DOUBLE, e REAL, f BOOLEAN, g DATE, h TIMESTAMP, \
             i TIMESTAMPTZ, j DECIMAL(10, 2), k BINARY, l BYTEA, m TEXT[], n BIGINT[][], o STRUCT<a BIGINT, b TEXT[]>, \
             p STRUCT<\"x y\" BIGINT, \"Order\" STRUCT<\"A\" INT>[]>)",
        ),
        (
            "laid_out",
            "CREATE TABLE laid_out (id BIGINT, s TEXT, dt DATE, x DOUBLE, user_id TEXT, PRIMARY KEY (id, dt)) \
             PARTITIONED BY (dt) CLUSTERED BY (id, s) INDEXED BY (id, s words, x zones, user_id ngrams) \
             ID DOMAINS (user_id users)",
        ),
        (
            "odd",
            "CREATE TABLE odd (\"Order\" BIGINT, \"select\" TEXT, \"two words\" INT NOT NULL, \"a\"\"b\" TEXT) \
             PARTITIONED BY (\"two words\") CLUSTERED BY (\"Order\") INDEXED BY (\"select\" words); \
             COMMENT ON TABLE odd IS 'it''s; odd'; COMMENT ON COLUMN odd.\"a\"\"b\" IS 'letters'",
        ),
        ("of_query", "CREATE TABLE of_query AS SELECT 1 AS n, 'x' AS t, [1, 2] AS l"),
    ] {
        block_on(session.query(sql)).unwrap();
        let (described, made) =
            (rows(&session, &format!("DESCRIBE {table}")), shown(&session, table));
        block_on(session.query(&format!("DROP TABLE {table}"))).unwrap();
        block_on(session.query(&made)).unwrap_or_else(|error| panic!("{made}: {error}"));
        assert_eq!(rows(&session, &format!("DESCRIBE {table}")), described, "{made}");
        assert_eq!(shown(&session, table), made);
    }
    let odd = "CREATE TABLE odd (\n  \"Order\" bigint,\n  \"select\" text,\n  \"two words\" integer NOT NULL,\n  \
               \"a\"\"b\" text\n)\nPARTITIONED BY (\"two words\")\nCLUSTERED BY (\"Order\")\n\
               INDEXED BY (\"select\" words);\nCOMMENT ON TABLE odd IS 'it''s; odd';\n\
               COMMENT ON COLUMN odd.\"a\"\"b\" IS 'letters'";
    assert_eq!(shown(&session, "odd"), odd);
}
