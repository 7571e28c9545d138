//! How the command is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // At a fixed address: 360,000 pointers in constants are not written anew at each start.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
