//! Runs the server until it is killed: `uplake-faulty-s3 [--port=9100] [--addresses=1]
//! [--usual] [--log] [--FAULT=NUMBER …]`, with the fields of `Faults` as faults. `--log` writes each
//! request to standard error, with the milliseconds since the start.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use uplake_faulty_s3::{Asked, Faults, Server};

/// How late a line of the log may be.
const LOG_PAUSE: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("threads and timers");
    match runtime.block_on(run(std::env::args().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut port, mut addresses, mut faults) = (9100, 1, Faults::none(1));
    let mut is_logging = false;
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, "1"));
        let number: f64 = value.parse().map_err(|_| format!("{argument}: not a number"))?;
        match name {
            "--port" => port = number as u16,
            "--addresses" => addresses = number as u8,
            "--log" => is_logging = true,
            "--usual" => faults = Faults::usual(faults.seed),
            "--seed" => faults.seed = number as u64,
            "--median_ms" => faults.median_ms = number,
            "--sigma" => faults.sigma = number,
            "--tail" => faults.tail = number,
            "--bytes_per_second" => faults.bytes_per_second = number,
            "--requests_per_second" => faults.requests_per_second = number,
            "--unavailable" => faults.unavailable = number,
            "--internal" => faults.internal = number,
            "--reset" => faults.reset = number,
            "--cut" => faults.cut = number,
            "--short" => faults.short = number,
            "--stall" => faults.stall = number,
            "--stall_ms" => faults.stall_ms = number as u64,
            "--ignores_conditions" => faults.ignores_conditions = number,
            "--lost" => faults.lost = number,
            _ => {
                return Err(format!(
                    "{name}: unknown; use --port, --addresses, --log, --usual or a fault"
                ));
            }
        }
    }
    let server =
        Server::start_at(addresses, port, faults).await.map_err(|error| error.to_string())?;
    for address in server.addresses() {
        println!("http://{address}");
    }
    let begun = tokio::time::Instant::now();
    loop {
        if is_logging {
            for asked in server.take_log() {
                let Asked { method, key, detail } = asked;
                eprintln!("{} {method} {key} {detail}", begun.elapsed().as_millis());
            }
        }
        tokio::time::sleep(LOG_PAUSE).await;
    }
}
