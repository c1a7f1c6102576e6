import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.sqlite.Function;

/** SQLite's published driver, whose library for Linux calls Java back for functions. */
public class Database {
    static class Twice extends Function {
        @Override protected void xFunc() throws SQLException {
            result(value_text(0) + value_text(0));
        }
    }

    static class Total extends Function.Aggregate {
        double sum;
        @Override protected void xStep() throws SQLException { sum += value_double(0); }
        @Override protected void xFinal() throws SQLException { result(sum); }
    }

    static class Failing extends Function {
        @Override protected void xFunc() throws SQLException { throw new SQLException("no"); }
    }

    public static void main(String[] args) throws Exception {
        Class.forName("org.sqlite.JDBC");
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:")) {
            run(connection);
        }
    }

    static void run(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("create table words (id integer primary key, word text,"
                + " value real, bytes blob)");
        }
        connection.setAutoCommit(false);
        String insert = "insert into words (word, value, bytes) values (?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int nth = 0; nth < 100; nth++) {
                statement.setString(1, "w\u00f6rd \ud83d\ude00 " + nth);
                statement.setDouble(2, nth / 4.0);
                statement.setBytes(3, new byte[] {(byte) nth, 0, 1});
                statement.executeUpdate();
            }
        }
        connection.commit();
        Function.create(connection, "twice", new Twice());
        Function.create(connection, "total_of", new Total());
        Function.create(connection, "failing", new Failing());
        String query = "select id, twice(word), value, bytes from words where id % 25 = 0";
        try (Statement statement = connection.createStatement();
                ResultSet found = statement.executeQuery(query)) {
            while (found.next()) {
                System.out.println(found.getInt(1) + " " + found.getString(2).length() + " "
                    + found.getDouble(3) + " " + found.getBytes(4)[0]);
            }
        }
        query = "select count(*), total_of(value), max(word) from words";
        try (Statement statement = connection.createStatement();
                ResultSet found = statement.executeQuery(query)) {
            String word = found.getString(3);
            System.out.println(found.getInt(1) + " " + found.getDouble(2) + " "
                + word.codePointCount(0, word.length()));
        }
        for (String wrong : new String[] {"select nothing from nowhere", "select failing(1)"}) {
            try (Statement statement = connection.createStatement();
                    ResultSet found = statement.executeQuery(wrong)) {
                System.out.println("found something");
            } catch (SQLException exception) {
                System.out.println(exception.getMessage());
            }
        }
    }
}
