import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** What the Flight SQL JDBC driver makes of the server's answers: a line `name=value` each. Usage: FlightJdbc URL LONG_STATEMENT */
public class FlightJdbc {
  static void tell(String name, Object value) {
    System.out.println(name + "=" + value);
  }

  static String column(ResultSet found, String... names) throws SQLException {
    List<String> all = new ArrayList<>();
    try (ResultSet rows = found) {
      while (rows.next()) {
        List<String> row = new ArrayList<>();
        for (String name : names) row.add(rows.getString(name));
        all.add(String.join(":", row));
      }
    }
    return String.join(",", all);
  }

  static String values(ResultSet rows) throws SQLException {
    List<Object> values = new ArrayList<>();
    for (int n = 1; n <= rows.getMetaData().getColumnCount(); n++) {
      Object value = rows.getObject(n);
      values.add(value instanceof byte[] ? HexFormat.of().formatHex((byte[]) value) : value);
    }
    return values.toString();
  }

  public static void main(String[] arguments) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    Properties who = new Properties();
    who.put("user", "admin");
    who.put("password", "");
    try (Connection connection = DriverManager.getConnection(arguments[0], who)) {
      DatabaseMetaData about = connection.getMetaData();
      tell("product", about.getDatabaseProductName());
      tell("catalogs", column(about.getCatalogs(), "TABLE_CAT"));
      tell("schemas", column(about.getSchemas(), "TABLE_SCHEM"));
      tell("types", column(about.getTableTypes(), "TABLE_TYPE"));
      tell("tables", column(about.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE"));
      tell("columns", column(about.getColumns(null, "public", "every_type", "%"), "COLUMN_NAME", "DATA_TYPE"));
      tell("keys", column(about.getPrimaryKeys(null, "public", "people"), "COLUMN_NAME"));
      tell("valid", connection.isValid(5));

      String every = "select true, -7::smallint, 2147483647, '-9223372036854775808'::bigint, 1.5::real, 'nan'::double,"
          + " '-infinity'::double, '12345678901234567890123456.1234567890'::decimal(38,10), 'naïve ☃', '', decode('00ff', 'hex'),"
          + " date '1999-12-31', date '0001-01-01', timestamp '2026-01-31 10:00:00.000001', null::bigint";
      try (Statement one = connection.createStatement(); ResultSet rows = one.executeQuery(every)) {
        rows.next();
        tell("values", values(rows));
      }
      try (Statement list = connection.createStatement();
          ResultSet rows = list.executeQuery("select array[1::bigint, null, 3::bigint] as v")) {
        rows.next();
        tell("list", Arrays.toString((Object[]) rows.getArray(1).getArray()));
      }
      try (Statement all = connection.createStatement();
          ResultSet rows = all.executeQuery("select id from numbers order by id")) {
        long sum = 0, count = 0;
        for (; rows.next(); count++) sum += rows.getLong(1);
        tell("fetched", count + ":" + sum);
      }

      try (PreparedStatement one = connection.prepareStatement("select name from numbers where id = ?")) {
        StringBuilder names = new StringBuilder();
        for (int n = 1; n <= 10; n++) {
          one.setLong(1, n);
          try (ResultSet rows = one.executeQuery()) {
            rows.next();
            names.append(rows.getString(1)).append(' ');
          }
        }
        tell("prepared", names.toString().trim());
        tell("parameters", one.getParameterMetaData().getParameterType(1));
        tell("answers", one.getMetaData().getColumnName(1));
      }
      String sql = "select ?::boolean, ?::smallint, ?::integer, ?::bigint, ?::real, ?::double, ?::decimal(38,10), ?::text,"
          + " ?::bytea, ?::date, ?::timestamp, ?::bigint";
      try (PreparedStatement all = connection.prepareStatement(sql)) {
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
        all.setTimestamp(11, Timestamp.valueOf("2026-01-31 10:00:00.25"));
        all.setNull(12, Types.BIGINT);
        try (ResultSet rows = all.executeQuery()) {
          rows.next();
          tell("bound", values(rows));
        }
      }

      try (Statement wrong = connection.createStatement()) {
        wrong.executeQuery("select nope from people");
      } catch (SQLException e) {
        tell("error", e.toString().contains("nope"));
      }

      try (Statement make = connection.createStatement()) {
        make.executeUpdate("create table by_flight_jdbc (id bigint, name text)");
        tell("inserted", make.executeUpdate("insert into by_flight_jdbc values (1, 'a'), (2, null)"));
        try (PreparedStatement insert = connection.prepareStatement("insert into by_flight_jdbc values (?, ?)")) {
          insert.setLong(1, 3);
          insert.setString(2, "n3");
          tell("inserted_prepared", insert.executeUpdate());
        }
        tell("deleted", make.executeUpdate("delete from by_flight_jdbc where id < 3"));
        try (ResultSet rows = make.executeQuery("select id, name from by_flight_jdbc")) {
          rows.next();
          tell("left", values(rows));
        }
        make.executeUpdate("drop table by_flight_jdbc");
      }

      try (Statement slow = connection.createStatement()) {
        Thread stops = new Thread(() -> {
          try {
            Thread.sleep(700);
            slow.cancel();
          } catch (Exception e) {
            tell("cancel", e);
          }
        });
        stops.start();
        long began = System.nanoTime();
        try (ResultSet rows = slow.executeQuery(arguments[1])) {
          rows.next();
          tell("cancelled", false);
        } catch (SQLException e) {
          tell("cancelled", (System.nanoTime() - began) / 1_000_000_000 < 10);
        }
        stops.join();
      }
      try (Statement after = connection.createStatement(); ResultSet rows = after.executeQuery("select 1::bigint as v")) {
        rows.next();
        tell("after", rows.getLong(1));
      }
      tell("done", true);
    }
  }
}
