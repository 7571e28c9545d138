//! What this server can, and the types that it has, as drivers ask for them.

use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{Nullable, Searchable, SqlInfo, XdbcDataType, XdbcDatetimeSubcode};

/// `SqlSupportedTransaction::None`: writes are their own transactions.
const NO_TRANSACTIONS: i32 = 0;
/// `SqlSupportedCaseSensitivity`: names without quotes are read as lower case; case tells no two columns apart.
const LOWERCASE: i32 = 3;
const CASE_INSENSITIVE: i32 = 1;
/// Longest name of a table or column.
const NAME_BYTES: i64 = 255;

/// What this server can.
pub(super) fn sql_info() -> Result<SqlInfoData, FlightError> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Uplake");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, "59.3");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, NO_TRANSACTIONS);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0_i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0_i32);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, true);
    info.append(SqlInfo::SqlIdentifierCase, LOWERCASE);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlQuotedIdentifierCase, CASE_INSENSITIVE);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlKeywords, &["CLUSTERED", "INDEXED", "MATCH", "PARTITIONED"][..]);
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlCatalogTerm, "database");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.append(SqlInfo::SqlSelectForUpdateSupported, false);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    info.append(SqlInfo::SqlMaxColumnNameLength, NAME_BYTES);
    info.build()
}

/// The types of SQL here.
pub(super) fn types() -> Result<XdbcTypeInfoData, FlightError> {
    use XdbcDataType::*;
    let mut all = XdbcTypeInfoDataBuilder::new();
    for (name, kind, size) in [
        ("boolean", XdbcBit, 1),
        ("tinyint", XdbcTinyint, 3),
        ("smallint", XdbcSmallint, 5),
        ("int", XdbcInteger, 10),
        ("bigint", XdbcBigint, 19),
        ("real", XdbcReal, 24),
        ("double", XdbcDouble, 53),
        ("decimal", XdbcDecimal, 38),
        ("text", XdbcVarchar, i32::MAX),
        ("binary", XdbcVarbinary, i32::MAX),
        ("date", XdbcDate, 10),
        ("timestamp", XdbcTimestamp, 26),
    ] {
        let quoted = matches!(kind, XdbcVarchar | XdbcDate | XdbcTimestamp);
        let is_number = !quoted && !matches!(kind, XdbcBit | XdbcVarbinary);
        let (sql_data_type, datetime_subcode) = match kind {
            // The subcode 1 is both the year's and the date's.
            XdbcDate => (XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeYear)),
            XdbcTimestamp => (XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp)),
            other => (other, None),
        };
        all.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type: kind,
            column_size: Some(size),
            literal_prefix: quoted.then(|| "'".to_owned()),
            literal_suffix: quoted.then(|| "'".to_owned()),
            create_params: (kind == XdbcDecimal)
                .then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: kind == XdbcVarchar,
            searchable: Searchable::Full,
            unsigned_attribute: is_number.then_some(false),
            fixed_prec_scale: false,
            auto_increment: is_number.then_some(false),
            local_type_name: Some(name.to_owned()),
            minimum_scale: (kind == XdbcDecimal).then_some(0),
            maximum_scale: (kind == XdbcDecimal).then_some(38),
            sql_data_type,
            datetime_subcode,
            num_prec_radix: is_number.then_some(match kind {
                XdbcReal | XdbcDouble => 2,
                _ => 10,
            }),
            interval_precision: None,
        });
    }
    all.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_ask_for_is_there() {
        let wanted = [SqlInfo::FlightSqlServerName as u32, SqlInfo::SqlIdentifierQuoteChar as u32];
        assert_eq!(sql_info().unwrap().record_batch(wanted).unwrap().num_rows(), 2);
        let all = types().unwrap();
        assert_eq!(all.record_batch(None).unwrap().num_rows(), 12);
        assert_eq!(all.record_batch(XdbcDataType::XdbcBigint as i32).unwrap().num_rows(), 1);
    }
}
