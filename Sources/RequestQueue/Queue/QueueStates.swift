// Lanes, tenants and hosts: what a request is counted by, and where it waits. Objects, so that each is found by its name once for a
// request and not at each step of it. `@unchecked Sendable`: only the machine that made them touches them.

import DequeModule

/// A lane in which there is something. An object of one machine, see above.
final class LaneState: @unchecked Sendable {
    let id: LaneID
    let tenant: TenantState
    /// Those that are not finished, in the order in which they were accepted.
    var order: Deque<UInt64> = []
    /// How many of the first are under way and are no barriers: what is to be sent next stands behind them.
    var begun = 0
    var inFlight = 0
    /// When the next timer of the lane ends.
    var timer: Int64?
    /// Whether it stands among its tenant's lanes that may have something to send.
    var isReady = false
    /// Whether another one has its name by now, or none.
    var isGone = false

    init(_ id: LaneID, _ tenant: TenantState) { (self.id, self.tenant) = (id, tenant) }

    var isQuiet: Bool { order.isEmpty && inFlight == 0 && !isReady }

    /// Where a request stands, or would stand: ids rise.
    func place(of id: UInt64) -> Int {
        var (low, high) = (0, order.count)
        while low < high {
            let middle = (low + high) / 2
            if order[middle] < id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

/// Lanes that wait for something, each once.
struct WaitingLanes: Sendable {
    private var lanes: [ObjectIdentifier: LaneState] = [:]

    mutating func insert(_ lane: LaneState) { lanes[ObjectIdentifier(lane)] = lane }

    /// Those that have waited, which do no longer.
    mutating func take() -> [LaneState] {
        guard !lanes.isEmpty else { return [] }
        defer { lanes = [:] }
        return Array(lanes.values)
    }
}

/// What a tenant has in the queue. An object of one machine, see above.
final class TenantState: @unchecked Sendable {
    let name: String
    private var foreground: Deque<LaneState> = []
    private var background: Deque<LaneState> = []
    private var isInRing = false
    private var turns = 0
    var requests = 0
    var size = 0
    var inFlight = 0
    var hasSession = false
    /// An operator keeps back all that it sends.
    var isHeld = false
    /// Lanes in which something waits for the session.
    var waitingForSession = WaitingLanes()

    init(_ name: String) { self.name = name }

    /// Of four turns of a tenant one belongs to requests that nobody waits for, so that they are late but not for ever.
    static let backgroundTurn = 4

    /// Whether nothing is left of it that somebody may need.
    var isQuiet: Bool { requests == 0 && !hasSession && !isHeld && foreground.isEmpty && background.isEmpty }

    /// A lane has something to send from now on.
    func add(_ lane: LaneState, isBackground: Bool) {
        lane.isReady = true
        if isBackground { background.append(lane) } else { foreground.append(lane) }
    }

    /// Whether it is to stand in the ring from now on, which it does not yet.
    func joinRing(_ limit: Int) -> Bool {
        guard !isInRing, !foreground.isEmpty || !background.isEmpty, inFlight < limit else { return false }
        isInRing = true
        return true
    }

    func leaveRing() { isInRing = false }

    /// The lane whose turn it is.
    func nextLane() -> LaneState? {
        defer { turns = (turns + 1) % Self.backgroundTurn }
        let lane =
            turns == Self.backgroundTurn - 1
            ? background.popFirst() ?? foreground.popFirst() : foreground.popFirst() ?? background.popFirst()
        lane?.isReady = false
        return lane
    }

    /// Lets go of its lanes, which hold it.
    fileprivate func dismantle() {
        foreground = []
        background = []
        waitingForSession = WaitingLanes()
    }
}

/// All tenants, by name.
final class Tenants: @unchecked Sendable {
    private var states: [ExactText: TenantState] = [:]

    deinit { for tenant in states.values { tenant.dismantle() } }

    subscript(name: String) -> TenantState? { states[ExactText(name)] }

    func add(_ name: String) -> TenantState {
        let key = ExactText(name)
        if let tenant = states[key] { return tenant }
        let tenant = TenantState(name)
        states[key] = tenant
        return tenant
    }

    func remove(_ tenant: TenantState) {
        tenant.dismantle()
        states[ExactText(tenant.name)] = nil
    }
}

/// What is under way to a host, and whether it works. An object of one machine, see above.
final class HostState: @unchecked Sendable {
    let name: String
    var breaker: CircuitBreaker
    /// Requests that are to go to it.
    var requests = 0
    var inFlight = 0
    /// Lanes in which something waits for an answer of the host.
    var waiting = WaitingLanes()
    /// Until when the host has asked tenants to wait, with `Retry-After`.
    private(set) var pauses: [ExactText: Int64] = [:]
    /// Whether another one has its name by now, or none.
    var isGone = false

    init(_ name: String, _ breaker: CircuitBreaker) { (self.name, self.breaker) = (name, breaker) }

    /// Whether nothing is left of it that somebody may need.
    var isQuiet: Bool { requests == 0 && inFlight == 0 && breaker.isQuiet }

    /// The host has asked this tenant to wait.
    func pause(_ tenant: TenantState, until: Int64, now: Int64) {
        // Those that are over go before there are many.
        if pauses.count >= 1024 { pauses = pauses.filter { $0.value > now } }
        let name = ExactText(tenant.name)
        pauses[name] = max(until, pauses[name] ?? .min)
    }

    /// Until when a tenant has to wait; nil if it has not.
    func pause(of tenant: TenantState, now: Int64) -> Int64? {
        guard !pauses.isEmpty, let until = pauses[ExactText(tenant.name)] else { return nil }
        return until > now ? until : nil
    }
}
