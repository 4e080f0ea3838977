// The machine of one outage of the backend, from its loss until it has registered the connection again.
//
// It knows no lines and no sockets: events say what the backend did, actions say what the connection does next. While
// there is no connection, every event of an earlier one is ignored, because the connection was given up.

import Protection
import Reports
import RequestQueue

/// The machine of one outage, while the client stays connected.
struct Outage {
    /// What the connection does next.
    enum Action: Equatable {
        case nothing
        /// Begin the SASL login.
        case authenticate
        /// Send the lines of the login.
        case sendLogin
        /// End the capability negotiation, so that the backend registers the connection.
        case endNegotiation
        /// Ask for another nick; the first attempt is 1.
        case tryNick(attempt: Int)
        /// Close the connection to the backend, and try again later.
        case reconnect
        /// End the client's connection with this reason.
        case end(String)
        /// The outage is over.
        case resume
    }

    private enum Stage { case negotiating, loggingIn, registering, welcomed }

    /// One connection to the backend.
    private struct Attempt {
        var stage = Stage.negotiating
        var nicks = 0
        var isLoggedIn = false
    }

    private enum State {
        /// There is no connection to the backend.
        case down(awaitsServices: Bool)
        case reached(Attempt)
    }

    /// Ours: the number of refused logins after which the connection gives up.
    static let loginRefusals = 8
    /// Ours: how often a backend is found without its services before it gives up. With pauses of some seconds
    /// that is more than a minute.
    static let absences = 40
    /// Ours: other nicks to try while the first one is taken, perhaps by this person's own dead connection.
    static let nickAttempts = 5

    /// Rooms to join again, folded.
    let rooms: Set<ExactText>
    /// The position for requests that the vault returns, before everything written during the outage; nil if the account
    /// has none.
    let ticket: UInt64?
    private var state = State.down(awaitsServices: false)
    private var refusals = 0
    private var absences = 0

    init(rooms: Set<ExactText>, ticket: UInt64?) { (self.rooms, self.ticket) = (rooms, ticket) }

    /// Whether the backend is back without its services, which accept logins.
    var awaitsServices: Bool {
        if case .down(awaitsServices: true) = state { true } else { false }
    }

    /// Whether the backend has accepted the registration, and its welcome has not ended.
    var isWelcomed: Bool {
        if case .reached(let attempt) = state { attempt.stage == .welcomed } else { false }
    }

    // MARK: Events

    /// The backend has been reached.
    mutating func reached() { state = .reached(Attempt()) }

    /// The connection to the backend was lost again, or was not reached.
    mutating func lost() {
        switch state {
        case .down: break
        case .reached: state = .down(awaitsServices: false)
        }
    }

    /// The capabilities are known.
    ///
    /// - Parameters:
    ///   - repeatsLogin: whether there is a login to repeat.
    ///   - hasLogin: whether the backend offers logins now.
    mutating func negotiated(repeatsLogin: Bool, hasLogin: Bool) -> Action {
        guard case .reached(var attempt) = state, attempt.stage == .negotiating else { return .nothing }
        guard repeatsLogin else { return register(&attempt) }
        guard hasLogin else {
            absences += 1
            guard absences < Self.absences else { return .end(Notices.loginRefused) }
            state = .down(awaitsServices: true)
            return .reconnect
        }
        attempt.stage = .loggingIn
        state = .reached(attempt)
        return .authenticate
    }

    /// The backend asks for the lines of the login.
    func loginAsked() -> Action {
        guard case .reached(let attempt) = state, attempt.stage == .loggingIn else { return .nothing }
        return .sendLogin
    }

    /// The backend has logged the connection in.
    ///
    /// - Parameter isOwn: whether as the account of this connection.
    mutating func loggedIn(isOwn: Bool) {
        guard case .reached(var attempt) = state else { return }
        attempt.isLoggedIn = isOwn
        state = .reached(attempt)
    }

    mutating func loginAccepted() -> Action {
        guard case .reached(var attempt) = state else { return .nothing }
        return register(&attempt)
    }

    mutating func loginRefused() -> Action {
        guard case .reached = state else { return .nothing }
        refusals += 1
        return refusals < Self.loginRefusals ? .reconnect : .end(Notices.loginRefused)
    }

    mutating func nickRefused() -> Action {
        guard case .reached(var attempt) = state else { return .nothing }
        attempt.nicks += 1
        state = .reached(attempt)
        return attempt.nicks <= Self.nickAttempts ? .tryNick(attempt: attempt.nicks) : .reconnect
    }

    /// The backend lets nobody of this address or with this password in.
    func registrationRefused() -> Action {
        guard case .reached = state else { return .nothing }
        return .end(Notices.registrationRefused)
    }

    /// The backend has accepted the registration and is sending its welcome numerics.
    mutating func welcomed() {
        guard case .reached(var attempt) = state else { return }
        attempt.stage = .welcomed
        state = .reached(attempt)
    }

    /// The welcome numerics have ended.
    ///
    /// - Parameter needsLogin: whether the connection is its account only after an accepted login.
    func welcomeEnded(needsLogin: Bool) -> Action {
        guard case .reached(let attempt) = state, attempt.stage == .welcomed else { return .nothing }
        return attempt.isLoggedIn || !needsLogin ? .resume : .end(Notices.loginRefused)
    }

    private mutating func register(_ attempt: inout Attempt) -> Action {
        attempt.stage = .registering
        state = .reached(attempt)
        return .endNegotiation
    }
}

/// The machine of a connection's relation with the backend.
struct BackendPhase {
    private enum State {
        /// The client is registering.
        case registering
        case registered
        /// The backend was lost; the client stays connected.
        case outage(Outage)
        /// The backend has ended its side, or was given up.
        case closed(wasRegistered: Bool)
    }

    private var state = State.registering

    /// Whether the backend has accepted the registration once.
    var isRegistered: Bool {
        switch state {
        case .registering, .closed(wasRegistered: false): false
        case .registered, .outage, .closed(wasRegistered: true): true
        }
    }

    /// Whether lines can be sent to the backend.
    var isOpen: Bool {
        switch state {
        case .registering, .registered: true
        case .outage, .closed: false
        }
    }

    var isClosed: Bool {
        if case .closed = state { true } else { false }
    }

    /// The outage; nil if there is none.
    var outage: Outage? {
        if case .outage(let outage) = state { outage } else { nil }
    }

    var isSuspended: Bool {
        if case .outage = state { true } else { false }
    }

    // MARK: Events

    /// The backend has accepted the client's registration.
    ///
    /// - Returns: whether it is the first time.
    mutating func register() -> Bool {
        guard case .registering = state else { return false }
        state = .registered
        return true
    }

    /// The backend was lost, and the client stays.
    mutating func suspend(_ outage: Outage) { state = .outage(outage) }

    /// Passes an event to the machine of the outage.
    ///
    /// - Returns: nil if there is no outage.
    @discardableResult
    mutating func inOutage<Result>(_ event: (inout Outage) -> Result) -> Result? {
        guard case .outage(var outage) = state else { return nil }
        let result = event(&outage)
        state = .outage(outage)
        return result
    }

    /// The outage is over.
    ///
    /// - Returns: the outage; nil if there was none.
    mutating func resume() -> Outage? {
        guard case .outage(let outage) = state else { return nil }
        state = .registered
        return outage
    }

    mutating func close() { state = .closed(wasRegistered: isRegistered) }
}
