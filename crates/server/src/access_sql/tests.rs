//! What statements say, and what is wrong with others.

use uplake_engine::Position;

use super::parser::parse;
use super::statement::{
    AccessStatement as S, Condition, Granting, Limit, Named, On, Password, PolicyChange, RoleName,
    RoleOptions, Verbs,
};
use crate::access::Verb;

fn named(name: &str) -> RoleName {
    RoleName::Named(name.to_owned())
}

fn table(name: &str, at: usize) -> Named {
    Named { name: name.to_owned(), is_exact: false, at }
}

fn check(text: &str, expected: S) {
    let found = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(found, expected, "{text}");
}

#[test]
fn roles_are_made_changed_and_dropped() {
    let name = || "ann".to_owned();
    let login = RoleOptions { login: Some(true), ..RoleOptions::default() };
    check("CREATE USER Ann", S::CreateRole { name: name(), options: login.clone() });
    check(
        "create role ann with login inherit NOSUPERUSER",
        S::CreateRole { name: name(), options: login },
    );
    let all = RoleOptions {
        login: Some(false),
        password: Some(Some(Password::Plain("it's".into()))),
        member_of: vec!["reader".into(), "Team".into()],
        valid_until: Some(Some(86_400_000 - 1)),
        connection_limit: Some(Some(4)),
        tenant: Some(Some("growth".into())),
    };
    let text = "CREATE ROLE ann NOLOGIN ENCRYPTED PASSWORD 'it''s' VALID UNTIL '1970-01-01' \
                CONNECTION LIMIT 4 IN ROLE reader, \"Team\" TENANT growth";
    check(text, S::CreateRole { name: name(), options: all });
    let none = RoleOptions {
        password: Some(None),
        valid_until: Some(None),
        connection_limit: Some(None),
        tenant: Some(None),
        ..RoleOptions::default()
    };
    let text = "ALTER USER CURRENT_USER PASSWORD NULL VALID UNTIL 'infinity' CONNECTION LIMIT -1 TENANT NULL";
    check(text, S::AlterRole { role: RoleName::Own, options: none });
    let names = vec!["a".to_owned(), "b".to_owned()];
    check("DROP USER IF EXISTS a, b", S::DropRoles { names, if_exists: true });
    // psql's \password.
    let verifier = crate::access::Verifier::new("pencil", [1; 16]).unwrap();
    let text = format!("ALTER USER \"ann\" PASSWORD '{verifier}'");
    let S::AlterRole { options, .. } = parse(&text).unwrap() else { panic!("{text}") };
    assert_eq!(options.password, Some(Some(Password::Verifier(verifier))));
    assert!(options.is_password_alone());
}

#[test]
fn rights_are_granted_and_revoked() {
    let to = || vec![named("ann")];
    let verbs =
        |verbs: &[Verb]| Verbs::Some(verbs.iter().map(|verb| (*verb, Vec::new())).collect());
    check(
        "GRANT reader, writer TO ann",
        S::GrantRoles { of: vec!["reader".into(), "writer".into()], to: to() },
    );
    check(
        "REVOKE reader FROM GROUP ann CASCADE",
        S::RevokeRoles { of: vec!["reader".into()], from: to() },
    );
    check(
        "GRANT SELECT, INSERT ON TABLE t, public.u TO ann",
        S::Grant(Granting {
            verbs: verbs(&[Verb::Select, Verb::Insert]),
            on: vec![On::Table(table("t", 30)), On::Table(table("u", 40))],
            roles: to(),
        }),
    );
    check(
        "GRANT SELECT (a) ON t TO ann",
        S::Grant(Granting {
            verbs: Verbs::Some(vec![(Verb::Select, vec![table("a", 14)])]),
            on: vec![On::Table(table("t", 20))],
            roles: to(),
        }),
    );
    for (on, expected) in [
        ("ALL TABLES IN SCHEMA public", On::Schema),
        ("SCHEMA public", On::Schema),
        ("LAKE", On::Lake),
        ("ID DOMAIN users", On::IdDomain("users".into())),
        ("EXPERIMENT checkout", On::Experiment("checkout".into())),
        // Names like these words.
        ("lake, t", On::Table(table("lake", 14))),
    ] {
        let S::Revoke(found) = parse(&format!("REVOKE ALL ON {on} FROM ann")).unwrap() else {
            panic!("{on}")
        };
        assert_eq!((found.verbs, &found.on[0]), (Verbs::All, &expected), "{on}");
    }
    check(
        "GRANT EXECUTE REPORT ON EXPERIMENT e TO PUBLIC",
        S::Grant(Granting {
            verbs: verbs(&[Verb::ExecuteReport]),
            on: vec![On::Experiment("e".into())],
            roles: vec![named("public")],
        }),
    );
}

#[test]
fn policies_and_columns() {
    let condition = |text: &str, at| Condition { text: text.into(), at };
    check(
        "CREATE POLICY p ON t FOR SELECT TO ann, bob USING ( country = 'D)E' )",
        S::CreatePolicy {
            name: "p".into(),
            table: table("t", 19),
            roles: vec![named("ann"), named("bob")],
            condition: condition("country = 'D)E'", 52),
        },
    );
    check(
        "CREATE POLICY p ON t USING ((a) > (1))",
        S::CreatePolicy {
            name: "p".into(),
            table: table("t", 19),
            roles: vec![named("public")],
            condition: condition("(a) > (1)", 28),
        },
    );
    check(
        "ALTER POLICY p ON t USING (true)",
        S::AlterPolicy {
            name: "p".into(),
            table: table("t", 18),
            change: PolicyChange { roles: None, condition: Some(condition("true", 27)) },
        },
    );
    check(
        "DROP POLICY IF EXISTS p ON t",
        S::DropPolicy { name: "p".into(), table: table("t", 27), if_exists: true },
    );
    check(
        "ALTER TABLE t HIDE COLUMN a FROM ann",
        S::Columns {
            table: table("t", 12),
            columns: vec![table("a", 26)],
            roles: vec![named("ann")],
            hides: true,
        },
    );
    let shows = parse("ALTER TABLE public.t SHOW COLUMN \"A\", b TO ann").unwrap();
    assert!(matches!(shows, S::Columns { hides: false, columns, .. } if columns[0].is_exact));
}

#[test]
fn tenants_and_tokens() {
    check(
        "CREATE TENANT growth WITH (weight 3, slots = 8, memory '8GB', dollars_per_day 0.5)",
        S::CreateTenant {
            name: "growth".into(),
            limits: vec![
                Limit::Weight(3),
                Limit::Slots(Some(8)),
                Limit::Memory(Some(8 << 30)),
                Limit::MicrodollarsPerDay(Some(500_000)),
            ],
        },
    );
    check(
        "ALTER TENANT growth WITH (slots NULL)",
        S::AlterTenant { name: "growth".into(), limits: vec![Limit::Slots(None)] },
    );
    check("DROP TENANT growth", S::DropTenant { name: "growth".into(), if_exists: false });
    check(
        "CREATE TOKEN FOR ann VALID UNTIL '1970-01-01T00:00:01Z'",
        S::CreateToken { name: None, role: named("ann"), valid_until: Some(1000) },
    );
    check(
        "CREATE TOKEN ci FOR CURRENT_USER",
        S::CreateToken { name: Some("ci".into()), role: RoleName::Own, valid_until: None },
    );
    check(
        "DROP TOKEN IF EXISTS ci FOR ann",
        S::DropToken { name: "ci".into(), role: named("ann"), if_exists: true },
    );
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, code, column) in [
        ("CREATE ROLE", "42601", 12),
        ("CREATE ROLE ann LOGIN NOLOGIN", "42601", 23),
        ("CREATE ROLE ann SUPERUSER", "0A000", 17),
        ("CREATE ROLE ann VALID UNTIL 'soon'", "22023", 29),
        ("CREATE ROLE ann CONNECTION LIMIT -2", "22023", 35),
        ("CREATE ROLE pg_ann", "42602", 13),
        ("ALTER ROLE ann", "42601", 15),
        ("ALTER ROLE ann RENAME TO bob", "0A000", 16),
        ("ALTER ROLE ann SET x = 1", "0A000", 16),
        ("ALTER USER ann PASSWORD 'md50123456789abcdef0123456789abcdef'", "22023", 16),
        ("GRANT SELECT ON t", "42601", 18),
        ("GRANT TRUNCATE ON t TO ann", "0A000", 7),
        ("GRANT SELECT ON other.t TO ann", "42P01", 17),
        ("GRANT SELECT ON SCHEMA other TO ann", "42704", 24),
        ("GRANT SELECT ON DATABASE lake TO ann", "0A000", 17),
        ("GRANT reader TO ann WITH ADMIN OPTION", "0A000", 21),
        ("REVOKE GRANT OPTION FOR SELECT ON t FROM ann", "0A000", 8),
        ("CREATE POLICY p ON t FOR DELETE USING (true)", "0A000", 26),
        ("CREATE POLICY p ON t USING (true", "42601", 33),
        ("CREATE POLICY p ON t", "42601", 21),
        ("ALTER POLICY p ON t", "42601", 20),
        ("CREATE TENANT t WITH (wait 3)", "22023", 23),
        ("CREATE TENANT t WITH (memory 'much')", "22023", 30),
        ("ALTER TOKEN ci FOR ann", "0A000", 13),
        ("DROP TOKEN ci", "42601", 14),
        ("GRANT reader TO ann $1", "42601", 21),
    ] {
        let error = parse(text).err().unwrap_or_else(|| panic!("{text} is read"));
        assert_eq!(error.code().as_str(), code, "{text}: {error}");
        assert_eq!(error.position(), Some(Position { line: 1, column }), "{text}: {error}");
    }
}

#[test]
fn errors_do_not_repeat_passwords() {
    for text in [
        "CREATE USER ann PASSWORD pencil",
        "CREATE USER ann PASSWORD \"pencil\"",
        "CREATE USER ann 'pencil'",
        "CREATE USER ann PASSWORD 'x' 'pencil'",
        "CREATE USER ann PASSWORD E'pencil\\n'",
        "ALTER USER ann PASSWORD 'SCRAM-SHA-256$pencil'",
        "ALTER USER ann VALID UNTIL 'pencil'",
    ] {
        let error = parse(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("pencil"), "{text}: {error:?}");
    }
    let made = parse("CREATE USER ann PASSWORD 'pencil'").unwrap();
    assert!(!format!("{made:?}").contains("pencil"));
}
