import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** What pgJDBC makes of the server's answers: a line `name=value` each. Usage: Jdbc URL LONG_STATEMENT */
public class Jdbc {
  static void tell(String name, Object value) {
    System.out.println(name + "=" + value);
  }

  static String column(ResultSet rows, String... names) throws SQLException {
    List<String> found = new ArrayList<>();
    while (rows.next()) {
      List<String> row = new ArrayList<>();
      for (String name : names) row.add(rows.getString(name));
      found.add(String.join(":", row));
    }
    return String.join(",", found);
  }

  public static void main(String[] arguments) throws Exception {
    System.setProperty("user.timezone", "UTC");
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    try (Connection connection = DriverManager.getConnection(arguments[0], "admin", "")) {
      DatabaseMetaData about = connection.getMetaData();
      tell("product", about.getDatabaseProductName());
      tell("schemas", column(about.getSchemas(), "TABLE_SCHEM"));
      tell("catalogs", column(about.getCatalogs(), "TABLE_CAT"));
      tell("types", column(about.getTableTypes(), "TABLE_TYPE").contains("TABLE"));
      tell("tables", column(about.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE"));
      tell("columns", column(about.getColumns(null, "public", "every_type", "%"), "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE"));
      tell("keys", column(about.getPrimaryKeys(null, "public", "people"), "COLUMN_NAME"));
      tell("foreign", column(about.getImportedKeys(null, "public", "people"), "FKCOLUMN_NAME"));
      tell("indexes", column(about.getIndexInfo(null, "public", "people", false, true), "INDEX_NAME"));
      tell("type_info", column(about.getTypeInfo(), "TYPE_NAME").contains("int8"));
      tell("isolation", connection.getTransactionIsolation() > 0);
      tell("valid", connection.isValid(5));

      try (PreparedStatement one = connection.prepareStatement("select name from numbers where id = ?")) {
        StringBuilder names = new StringBuilder();
        for (int n = 1; n <= 10; n++) { // named on the server from the fifth run on, and binary then
          one.setLong(1, n);
          try (ResultSet rows = one.executeQuery()) {
            rows.next();
            names.append(rows.getString(1)).append(' ');
          }
        }
        tell("prepared", names.toString().trim());
        tell("parameters", one.getParameterMetaData().getParameterTypeName(1));
        tell("answers", one.getMetaData().getColumnName(1) + ":" + one.getMetaData().getColumnTypeName(1));
      }

      String sql = "select ?::boolean, ?::smallint, ?::integer, ?::bigint, ?::real, ?::double precision,"
          + " ?::decimal(38,10), ?::text, ?::bytea, ?::date, ?::timestamp, ?::bigint";
      try (PreparedStatement all = connection.prepareStatement(sql)) {
        for (int turn = 0; turn < 7; turn++) {
          all.setBoolean(1, true);
          all.setShort(2, (short) -7);
          all.setInt(3, Integer.MAX_VALUE);
          all.setLong(4, Long.MIN_VALUE);
          all.setFloat(5, 1.5f);
          all.setDouble(6, -0.1);
          all.setBigDecimal(7, new BigDecimal("12345678901234567890123456.1234567890"));
          all.setString(8, "naïve ☃");
          all.setBytes(9, new byte[] {0, (byte) 255});
          all.setDate(10, java.sql.Date.valueOf("1999-12-31"));
          all.setTimestamp(11, Timestamp.valueOf("2026-01-31 10:00:00.000001"));
          all.setNull(12, Types.BIGINT);
          try (ResultSet rows = all.executeQuery()) {
            rows.next();
            List<Object> values = new ArrayList<>();
            for (int n = 1; n <= 12; n++) {
              Object value = rows.getObject(n);
              values.add(value instanceof byte[] ? HexFormat.of().formatHex((byte[]) value) : value);
            }
            tell("values" + turn, values);
          }
        }
      }
      try (Statement list = connection.createStatement();
          ResultSet rows = list.executeQuery("select array[1::bigint, null, 3::bigint] as v")) {
        rows.next();
        tell("list", Arrays.toString((Object[]) rows.getArray(1).getArray()));
      }

      connection.setAutoCommit(false);
      try (Statement pieces = connection.createStatement()) {
        pieces.setFetchSize(100);
        long sum = 0, count = 0;
        try (ResultSet rows = pieces.executeQuery("select id from numbers order by id")) {
          for (; rows.next(); count++) sum += rows.getLong(1);
        }
        tell("fetched", count + ":" + sum);
      }
      try (Statement wrong = connection.createStatement()) {
        try {
          wrong.executeQuery("select nope from people");
        } catch (SQLException e) {
          tell("error", e.getSQLState());
        }
        try {
          wrong.executeQuery("select 1");
        } catch (SQLException e) {
          tell("failed", e.getSQLState());
        }
      }
      connection.rollback();
      connection.setAutoCommit(true);

      try (Statement slow = connection.createStatement()) {
        slow.setQueryTimeout(1);
        try {
          slow.executeQuery(arguments[1]);
        } catch (SQLException e) {
          tell("timeout", e.getSQLState());
        }
      }

      try (Statement make = connection.createStatement()) {
        make.executeUpdate("create table by_jdbc (id bigint, name text)");
        try (PreparedStatement insert = connection.prepareStatement("insert into by_jdbc values (?, ?)")) {
          for (int n = 0; n < 5; n++) {
            insert.setInt(1, n);
            insert.setString(2, "n" + n);
            insert.addBatch();
          }
          tell("batch", Arrays.toString(insert.executeBatch()));
        }
        tell("deleted", make.executeUpdate("delete from by_jdbc where id < 2"));
        make.executeUpdate("drop table by_jdbc");
      }
      tell("done", true);
    }
  }
}
