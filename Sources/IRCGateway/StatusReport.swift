// The reports of `pawl status` and `pawl policy simulate`, from the store and from memory. They contain names of people
// and rooms, for the operator.

import DeviceDirectory
import Envelope
package import Outbox
package import Protection
import Reports
import RequestQueue
package import StorePort
import Vault

/// The status of the gateway and of the migration.
package struct StatusReport: Codable, Sendable, Equatable {
    package struct Accounts: Codable, Sendable, Equatable {
        /// Accounts, and nicks without one, whose clients have not requested the capability.
        package var legacy: Int
        /// Accounts, and nicks without one, whose clients have requested it.
        package var askedForCapability: Int
        /// Hosted devices: this gateway has the private keys.
        package var custodyGateway: Int
        /// Devices on people's own machines whose public keys the directory has.
        package var custodyDevice: Int
        package var connectedNow: Int
        /// Accounts that have sent a credential to this gateway; HTTP only.
        package var behind: Int?
    }

    package struct Conversations: Codable, Sendable, Equatable {
        /// Protected end-to-gateway: the operator of the gateway can read them.
        package var gateway: Int
        /// Protected end-to-end.
        package var device: Int
    }

    package struct Share: Codable, Sendable, Equatable {
        package var period: String
        package var plaintext: Int
        package var gateway: Int
        package var device: Int
        package var exempt: Int
        package var refused: Int
    }

    /// Requests since this process started, counted as ``RequestCounts`` are, and those that wait now.
    package struct Requests: Codable, Sendable, Equatable {
        package var accepted: Int
        package var done: Int
        package var dead: Int
        package var waiting: Int
        /// Waiting requests that an operator holds.
        package var held: Int
        /// Accounts with a hold on all their requests, as text.
        package var heldAccounts: [String]
        /// The age of the oldest waiting request; nil if none waits.
        package var oldestSeconds: Int64?
        /// Requests that the backend may have performed twice, including ended ones since the start; HTTP only.
        package var doubtful: Int?
        /// Waiting requests that need their sender's next login; HTTP only.
        package var withoutLogin: Int?

        package init(
            _ counts: RequestCounts, held: Int, heldAccounts: [String], oldestSeconds: Int64?, doubtful: Int? = nil,
            withoutLogin: Int? = nil
        ) {
            (accepted, done, dead, waiting) = (counts.accepted, counts.done, counts.dead, counts.waiting)
            (self.held, self.heldAccounts, self.oldestSeconds) = (held, heldAccounts, oldestSeconds)
            (self.doubtful, self.withoutLogin) = (doubtful, withoutLogin)
        }
    }

    package struct Blocker: Codable, Sendable, Equatable {
        package var what: String
        package var name: String
        package var messages: Int

        package init(what: String, name: String, messages: Int) {
            (self.what, self.name, self.messages) = (what, name, messages)
        }
    }

    package var policy: String
    package var policySource: String
    package var accountPolicies: Int
    package var upstream: String
    package var uptimeSeconds: Int64
    package var connections: Int
    package var accounts: Accounts
    package var conversations: Conversations
    package var shares: [Share]
    package var queue: [String: Int]
    package var requests: Requests
    package var blockers: [Blocker]
    package var warnings: [String]
}

/// The effect of a policy for everyone on the observed messages, and on later ones.
package struct SimulationReport: Codable, Sendable, Equatable {
    package struct Refused: Codable, Sendable, Equatable {
        package var sender: String
        /// The recipient; the route or command of a request that could not be protected.
        package var target: String
        package var reason: String
        package var messages: Int
    }

    /// A person who is not behind the gateway, and could no longer read some conversations.
    package struct Blinded: Codable, Sendable, Equatable {
        package var name: String
        package var conversations: [String]
    }

    package var policy: String
    /// The number of observed messages, and of other requests that some policy refuses.
    package var messages: Int
    package var refusedMessages: Int
    /// Senders with at least one refused message or request.
    package var people: [String]
    /// Their recipients who are not behind the gateway.
    package var outsiders: [String]
    package var refused: [Refused]
    /// Refused messages and requests by sender.
    package var byPerson: [String: Int]
    /// Refused requests by route or command, without messages.
    package var byRoute: [String: Int]
    /// Conversations that the next message in them would protect for good.
    package var latches: [LatchForecast.Rise]
    package var blinded: [Blinded]
    /// Known accounts without observations: the report cannot predict anything for them.
    package var neverObserved: [String]

    /// Applies a policy to observations.
    ///
    /// - Parameter known: the names of all known accounts.
    package init(
        _ policy: Policy, _ observations: [ObservationRow], _ forecast: LatchForecast = LatchForecast(),
        known: Set<String> = []
    ) {
        self.policy = policy.name
        messages = observations.reduce(0) { $0.addingClamped($1.messages) }
        var refused: [Refused] = []
        byPerson = [:]
        byRoute = [:]
        for row in observations {
            let observed = ObservedRecipient(rawValue: row.recipient) ?? .outsider
            guard let refusal = observed.refusal(under: policy, target: row.target) else { continue }
            refused.append(
                Refused(sender: row.sender, target: row.target, reason: refusal.name, messages: row.messages))
            byPerson[row.sender, default: 0].addClamped(row.messages)
            if observed.isRoute { byRoute[row.target, default: 0].addClamped(row.messages) }
        }
        refusedMessages = refused.reduce(0) { $0.addingClamped($1.messages) }
        people = Set(refused.map(\.sender)).sorted()
        outsiders = Set(refused.filter { $0.reason == Refusal.outsider.name }.map(\.target)).sorted()
        self.refused = refused.sorted { ($1.messages, $0.sender, $0.target) < ($0.messages, $1.sender, $1.target) }
        latches = forecast.rises
        var conversations: [String: [String]] = [:]
        for rise in forecast.rises {
            for outsider in rise.outsiders { conversations[outsider, default: []].append(rise.conversation) }
        }
        blinded = conversations.map { Blinded(name: $0.key, conversations: $0.value) }.sorted { $0.name < $1.name }
        neverObserved = known.subtracting(observations.map(\.sender)).sorted()
    }
}

extension Int {
    /// The sum, or `Int.max` on overflow: rows of a store are external input.
    fileprivate func addingClamped(_ other: Int) -> Int {
        let (sum, overflows) = addingReportingOverflow(other)
        return overflows ? .max : sum
    }

    fileprivate mutating func addClamped(_ other: Int) { self = addingClamped(other) }
}

/// Makes reports.
package struct Reporter: Sendable {
    private let environment: IRCEnvironment
    private let store: any Store

    package init(environment: IRCEnvironment, store: any Store) {
        (self.environment, self.store) = (environment, store)
    }

    /// The current status, without the requests, which each chat protocol counts itself.
    ///
    /// - Throws: ``StoreError`` if the store cannot be read.
    package func status(
        upstream: String, policySource: String, connections: Int, startedAt: Int64, now: Timestamp
    ) throws(StoreError) -> StatusReport {
        let evidence = try store.evidence(limit: 100_000)
        let conversations = try store.conversations(limit: 100_000)
        let contents = try store.load()
        let snapshot = environment.policies.snapshot
        let observations = try store.observations(limit: 10_000)
        let names = Set(evidence.map(\.name))
        let asked = Set(evidence.filter(\.asked).map(\.name))
        return StatusReport(
            policy: snapshot.everyone.name, policySource: policySource, accountPolicies: snapshot.accounts.count,
            upstream: upstream, uptimeSeconds: (now.wall - startedAt) / 1000, connections: connections,
            accounts: .init(
                legacy: names.subtracting(asked).count, askedForCapability: asked.count,
                custodyGateway: contents.devices.count { $0.account.roomName == nil },
                custodyDevice: environment.directory?.all.reduce(0) { $0 + $1.entry.published.count } ?? 0,
                connectedNow: environment.roster.count),
            conversations: .init(
                gateway: conversations.filter { $0.latch == .gateway }.count,
                device: conversations.filter { $0.latch == .device }.count),
            shares: try shares(now), queue: [:],
            requests: .init(RequestCounts(), held: 0, heldAccounts: [], oldestSeconds: nil),
            blockers: blockers(observations) + outsidersInRooms(),
            warnings: warnings(snapshot, legacy: names.subtracting(asked).count))
    }

    private func shares(_ now: Timestamp) throws(StoreError) -> [StatusReport.Share] {
        let hour = now.wall / 3_600_000
        let rows = try store.tallies(sinceHour: hour - 7 * 24)
        // Counts that are not stored yet are of this hour.
        let unwritten = environment.tally.unwritten.map { (kind: $0.kind.name, count: $0.count) }
        return [("this hour", 1), ("last 24 hours", 24), ("last 7 days", 7 * 24)].map { name, hours in
            var share = StatusReport.Share(period: name, plaintext: 0, gateway: 0, device: 0, exempt: 0, refused: 0)
            let counted = rows.filter { $0.hour > hour - Int64(hours) }.map { (kind: $0.kind, count: $0.count) }
            for row in counted + unwritten {
                switch row.kind {
                case TallyKind.sentPlaintext.name: share.plaintext += row.count
                case TallyKind.sentGateway.name: share.gateway += row.count
                case TallyKind.sentDevice.name: share.device += row.count
                case TallyKind.sentExempt.name: share.exempt += row.count
                // Failed, because the message could not be stored or sent.
                case TallyKind.failed.name: share.refused += row.count
                case let kind where kind.hasPrefix("refused_"): share.refused += row.count
                default: break
                }
            }
            return share
        }
    }

    /// The numbers of stored requests to IRC, by state.
    ///
    /// - Throws: ``StoreError`` if the store cannot be read.
    package func queue() throws(StoreError) -> [String: Int] {
        let counts = try store.requestCounts()
        return Dictionary(
            uniqueKeysWithValues: [RequestState.pending, .done, .dead].map { ($0.name, counts[$0] ?? 0) })
    }

    /// The counts of requests to IRC. They are from one moment, so they add up.
    ///
    /// - Throws: ``StoreError`` if the store cannot be read.
    package func requests(_ now: Timestamp) throws(StoreError) -> StatusReport.Requests {
        let gate = environment.requests.gate
        let held =
            gate.holds.isEmpty ? 0 : try store.requests(states: [.pending], limit: 100_000).count(where: gate.isHeld)
        let heldAccounts = gate.holds.compactMap { scope in
            if case .account(let account) = scope { return environment.roster.nicks(of: account).first ?? account.name }
            return nil
        }
        let oldest = try store.requests(states: [.pending], limit: 1).first
        let counts = environment.requests.counters.counts
        return StatusReport.Requests(
            counts, held: min(held, counts.waiting), heldAccounts: heldAccounts.sorted(),
            oldestSeconds: oldest.map { max(now.wall - max($0.acceptedAt, 0), 0) / 1000 })
    }

    /// The recipients and requests that `hosted` would refuse, those with the most messages first.
    private func blockers(_ observations: [ObservationRow]) -> [StatusReport.Blocker] {
        var totals: [String: StatusReport.Blocker] = [:]
        for row in observations {
            guard let what = ObservedRecipient(rawValue: row.recipient)?.blocker else { continue }
            let blocker = StatusReport.Blocker(what: what, name: row.target, messages: 0)
            totals["\(what) \(row.target)", default: blocker].messages.addClamped(row.messages)
        }
        return totals.values.sorted { ($1.messages, $0.name, $0.what) < ($0.messages, $1.name, $1.what) }
            .prefix(20).map { $0 }
    }

    /// Room members who receive envelopes but no key.
    private func outsidersInRooms() -> [StatusReport.Blocker] {
        environment.rooms.outsiders { environment.roster.owner(ofFoldedNick: $0)?.participates == true }
            .prefix(20).map {
                StatusReport.Blocker(what: "outsider in a room", name: "\($0.nick) in \($0.room)", messages: 0)
            }
    }

    private func warnings(_ snapshot: PolicySnapshot, legacy: Int) -> [String] {
        var warnings: [String] = []
        if legacy > 0 {
            warnings.append(
                (legacy == 1 ? "One person has a client" : "\(legacy) people have clients")
                    + " that cannot encrypt by themselves; the policy required would refuse all their messages. They need "
                    + "a sidecar, or another client.")
        }
        if snapshot.strictest.demandsProtection {
            warnings.append("Hosted means end-to-gateway: whoever runs this gateway can read hosted messages.")
        }
        return warnings
    }
}
