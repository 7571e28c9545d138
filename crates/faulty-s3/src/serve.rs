//! Connections: what is answered when, and what goes wrong on the way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use uplake_testkit::random::Random;

use crate::http::{self, CHUNK, Request, Response};
use crate::objects::error;
use crate::{Address, Faults, State};

/// The throttle counts in windows of this length.
const WINDOW: Duration = Duration::from_millis(100);
/// A refusal costs the store little.
const REFUSAL: Duration = Duration::from_millis(5);
/// Bandwidth that was not used is kept for this long.
const SLACK: Duration = Duration::from_millis(5);

pub(crate) async fn listen(state: Arc<State>, index: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                state.endpoints[index].connections.fetch_add(1, Ordering::Relaxed);
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    // A client that goes away is no news.
                    let _ = serve(&state, index, socket).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(state: &State, index: usize, mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    let mut due = Instant::now();
    while let Some(request) = http::read(&mut socket, &mut buffer).await? {
        if !exchange(state, index, &mut socket, &request, &mut due).await? {
            // Closing with a reset, so that the client sees a broken connection and not an end.
            return socket.set_zero_linger();
        }
    }
    Ok(())
}

/// Answers one request; false if the connection breaks.
async fn exchange(
    state: &State,
    index: usize,
    socket: &mut TcpStream,
    request: &Request,
    due: &mut Instant,
) -> io::Result<bool> {
    let endpoint = &state.endpoints[index];
    endpoint.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(log) = state.log.lock().as_mut() {
        log.push(request.asked());
    }
    if !state.goes_on(request) {
        return std::future::pending().await;
    }
    let behaviour = *endpoint.behaviour.lock();
    let slowness = match behaviour {
        Address::Well => 1.0,
        Address::Slow(factor) => factor,
        Address::Dead => return std::future::pending().await,
    };
    let faults = state.faults.lock().clone();
    let mut fate = Fate::of(&faults, state.turn(request), request);
    if state.is_over(faults.requests_per_second) || fate.unavailable {
        endpoint.throttled.fetch_add(1, Ordering::Relaxed);
        sleep(REFUSAL).await;
        send_whole(socket, &error(503, "SlowDown")).await?;
        return Ok(true);
    }
    let first = Duration::from_secs_f64(fate.first_ms * slowness / 1e3);
    if first > Duration::ZERO {
        sleep(first).await;
    }
    if fate.reset {
        return Ok(false);
    }
    if fate.internal {
        send_whole(socket, &error(500, "InternalError")).await?;
        return Ok(true);
    }
    if let Some(takes_effect) = state.hides(request) {
        if takes_effect {
            state.objects.lock().answer(request);
        }
        send_whole(socket, &error(500, "InternalError")).await?;
        return Ok(true);
    }
    let unconditional = (faults.ignores_conditions > 0.0).then(|| request.without_conditions());
    let mut response = state.objects.lock().answer(unconditional.as_ref().unwrap_or(request));
    if fate.lost && request.method != "GET" && request.method != "HEAD" {
        return Ok(false);
    }
    let whole = response.body.len();
    let length = if fate.short && whole > 1 { fate.at(whole).max(1) } else { whole };
    if request.method == "HEAD" {
        socket.write_all(response.head(whole).as_bytes()).await?;
        return Ok(true);
    }
    let stops_at = fate.at(length);
    if fate.stall && stops_at < length / 2 {
        sleep(Duration::from_millis(faults.stall_ms)).await;
        fate.stall = false;
    }
    socket.write_all(response.head(length).as_bytes()).await?;
    let rate = faults.bytes_per_second / slowness;
    let mut sent = 0;
    while sent < length {
        let breaks = (fate.cut || fate.stall) && sent < stops_at;
        let most = if breaks { CHUNK.min(stops_at - sent) } else { CHUNK };
        let chunk = response.body.take(most.min(length - sent));
        if rate > 0.0 {
            *due = (*due).max(Instant::now() - SLACK)
                + Duration::from_secs_f64(chunk.len() as f64 / rate);
            sleep_until(*due).await;
        }
        socket.write_all(&chunk).await?;
        sent += chunk.len() as u64;
        endpoint.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        if sent >= stops_at && fate.cut {
            return Ok(false);
        }
        if sent >= stops_at && std::mem::take(&mut fate.stall) {
            sleep(Duration::from_millis(faults.stall_ms)).await;
        }
    }
    Ok(true)
}

async fn send_whole(socket: &mut TcpStream, response: &Response) -> io::Result<()> {
    let mut body = response.body.clone();
    let length = body.len();
    let mut bytes = response.head(length).into_bytes();
    bytes.extend_from_slice(&body.take(length));
    socket.write_all(&bytes).await
}

/// What happens to one request.
#[derive(Debug)]
struct Fate {
    first_ms: f64,
    unavailable: bool,
    internal: bool,
    reset: bool,
    cut: bool,
    short: bool,
    stall: bool,
    lost: bool,
    place: f64,
}

impl Fate {
    fn of(faults: &Faults, turn: u64, request: &Request) -> Self {
        let mut random = Random::stream(faults.seed ^ request.identity(), turn);
        let mut first_ms = faults.median_ms * random.lognormal(0.0, faults.sigma.max(1e-9));
        let late = random.unit() * (faults.tail_ms.end - faults.tail_ms.start);
        if random.chance(faults.tail) {
            first_ms += faults.tail_ms.start + late;
        }
        Self {
            first_ms,
            unavailable: random.chance(faults.unavailable),
            internal: random.chance(faults.internal),
            reset: random.chance(faults.reset),
            cut: random.chance(faults.cut),
            short: random.chance(faults.short) && request.header("range").is_some(),
            stall: random.chance(faults.stall),
            lost: random.chance(faults.lost),
            place: random.unit(),
        }
    }

    /// Where in a body of `length` bytes it happens.
    fn at(&self, length: u64) -> u64 {
        (self.place * length as f64) as u64
    }
}

impl State {
    /// How many equal requests came before this one.
    fn turn(&self, request: &Request) -> u64 {
        let mut seen = self.seen.lock();
        let turns = seen.entry(request.identity()).or_default();
        *turns += 1;
        *turns
    }

    /// Is the request answered? If not, it takes effect if it is the one that may.
    fn goes_on(&self, request: &Request) -> bool {
        let mut stop = self.stop.lock();
        match &mut stop.left {
            None => return true,
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                return true;
            }
        }
        let is_first = !std::mem::replace(&mut stop.is_silent, true);
        if is_first && stop.last_takes_effect {
            self.objects.lock().answer(request);
        }
        false
    }

    /// Is nothing told of this object? If so: does the request take effect?
    fn hides(&self, request: &Request) -> Option<bool> {
        let hidden = self.hidden.lock();
        let (suffix, writes_take_effect) = hidden.as_ref()?;
        let is_hidden = request.target().1.ends_with(suffix.as_str());
        is_hidden.then_some(*writes_take_effect && request.method == "PUT")
    }

    fn is_over(&self, requests_per_second: f64) -> bool {
        if requests_per_second <= 0.0 {
            return false;
        }
        let mut window = self.window.lock();
        let now = Instant::now();
        if now - window.0 > WINDOW {
            *window = (now, 0.0);
        }
        window.1 += 1.0;
        window.1 > requests_per_second * WINDOW.as_secs_f64()
    }
}
