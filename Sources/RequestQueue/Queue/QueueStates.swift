// Lanes, tenants and hosts, which count requests and list those that wait. Classes, so that a request looks each up by
// name once and not at each step. `@unchecked Sendable`: only the machine that made them accesses them.

import DequeModule

/// A lane that is not empty. An object of one machine, see above.
final class LaneState: @unchecked Sendable {
    let id: LaneID
    let tenant: TenantState
    /// Ids of the unfinished requests, in the order in which they were accepted.
    var order: Deque<UInt64> = []
    /// Number of requests at the front that are in flight and no barriers; the next one to send is behind them.
    var begun = 0
    var inFlight = 0
    /// Whether a barrier is in flight, which runs alone.
    var hasBarrier = false
    /// The time of the lane's next timer.
    var timer: Int64?
    /// Whether its tenant lists it among the lanes that may have something to send.
    var isReady = false
    /// Whether the machine has removed it. Another lane may have its name.
    var isGone = false

    init(_ id: LaneID, _ tenant: TenantState) { (self.id, self.tenant) = (id, tenant) }

    var isQuiet: Bool { order.isEmpty && inFlight == 0 && !isReady }

    /// The place of a request, or the one that it would have. Ids rise.
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

    /// Removes and returns all lanes.
    mutating func take() -> [LaneState] {
        guard !lanes.isEmpty else { return [] }
        defer { lanes = [:] }
        return Array(lanes.values)
    }
}

/// The state of a tenant in the queue. An object of one machine, see above.
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
    /// Whether an operator holds all its requests.
    var isHeld = false
    /// Lanes with a request that waits for the session key.
    var waitingForSession = WaitingLanes()

    init(_ name: String) { self.name = name }

    /// Every fourth turn of a tenant goes to background requests, so that they are delayed but not starved.
    static let backgroundTurn = 4

    /// Whether it can be removed.
    var isQuiet: Bool { requests == 0 && !hasSession && !isHeld && foreground.isEmpty && background.isEmpty }

    /// Adds a lane that may have something to send.
    func add(_ lane: LaneState, isBackground: Bool) {
        lane.isReady = true
        if isBackground { background.append(lane) } else { foreground.append(lane) }
    }

    /// Enters the ring, and returns whether it did: not if it is in the ring, has nothing to send, or is at its limit.
    func joinRing(_ limit: Int) -> Bool {
        guard !isInRing, !foreground.isEmpty || !background.isEmpty, inFlight < limit else { return false }
        isInRing = true
        return true
    }

    func leaveRing() { isInRing = false }

    /// Takes the lane whose turn it is.
    func nextLane() -> LaneState? {
        defer { turns = (turns + 1) % Self.backgroundTurn }
        let lane =
            turns == Self.backgroundTurn - 1
            ? background.popFirst() ?? foreground.popFirst() : foreground.popFirst() ?? background.popFirst()
        lane?.isReady = false
        return lane
    }

    /// Releases its lanes, which hold references to it.
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

/// The requests to a host, and whether it works. An object of one machine, see above.
final class HostState: @unchecked Sendable {
    let name: String
    var breaker: CircuitBreaker
    /// Unfinished requests for it.
    var requests = 0
    var inFlight = 0
    /// Lanes with a request that waits for an answer of the host.
    var waiting = WaitingLanes()
    /// When the pauses end that the host asked tenants for, with `Retry-After`.
    private(set) var pauses: [ExactText: Int64] = [:]
    /// Whether the machine has removed it. Another host may have its name.
    var isGone = false

    init(_ name: String, _ breaker: CircuitBreaker) { (self.name, self.breaker) = (name, breaker) }

    /// Whether it can be removed.
    var isQuiet: Bool { requests == 0 && inFlight == 0 && breaker.isQuiet }

    /// Notes that the host asked this tenant to wait.
    func pause(_ tenant: TenantState, until: Int64, now: Int64) {
        // Past pauses are removed before there are many.
        if pauses.count >= 1024 { pauses = pauses.filter { $0.value > now } }
        let name = ExactText(tenant.name)
        pauses[name] = max(until, pauses[name] ?? .min)
    }

    /// When the pause of a tenant ends; nil if it has none.
    func pause(of tenant: TenantState, now: Int64) -> Int64? {
        guard !pauses.isEmpty, let until = pauses[ExactText(tenant.name)] else { return nil }
        return until > now ? until : nil
    }
}
