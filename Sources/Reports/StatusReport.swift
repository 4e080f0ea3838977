// The reports of `pawl status` and `pawl policy simulate`, from the store and from memory. They contain names of people
// and rooms, for the operator.

import Envelope
package import Protection
package import StorePort

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
        /// Registered people behind the gateway now; 0 over HTTP, where a request needs no connection of its own.
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

        package init(period: String) {
            self.period = period
            (plaintext, gateway, device, exempt, refused) = (0, 0, 0, 0, 0)
        }

        /// Adds a counter of messages; other counters change nothing.
        ///
        /// - Parameter kind: the name of a ``TallyKind``.
        fileprivate mutating func add(_ kind: String, _ count: Int) {
            switch kind {
            case TallyKind.sentPlaintext.name: plaintext.addClamped(count)
            case TallyKind.sentGateway.name: gateway.addClamped(count)
            case TallyKind.sentDevice.name: device.addClamped(count)
            case TallyKind.sentExempt.name: exempt.addClamped(count)
            // Failed, because the message could not be stored or sent.
            case TallyKind.failed.name: refused.addClamped(count)
            case let kind where kind.hasPrefix("refused_"): refused.addClamped(count)
            default: break
            }
        }
    }

    /// Counts that begin with the process: two reports give rates, over the end of an hour too.
    package struct Totals: Codable, Sendable, Equatable {
        package var messages: Share
        /// Connections of clients that were accepted.
        package var connections: Int

        package init(messages: Share, connections: Int) { (self.messages, self.connections) = (messages, connections) }
    }

    /// Requests since this process started, and those that wait now: accepted = done + dead + waiting.
    package struct Requests: Codable, Sendable, Equatable {
        package var accepted = 0
        package var done = 0
        package var dead = 0
        package var waiting = 0
        /// Waiting requests that an operator holds.
        package var held = 0
        /// Accounts with a hold on all their requests, as text.
        package var heldAccounts: [String] = []
        /// The age of the oldest waiting request; nil if none waits.
        package var oldestSeconds: Int64?
        /// Requests that the backend may have performed twice, including ended ones since the start; HTTP only.
        package var doubtful: Int?
        /// Waiting requests that need their sender's next login; HTTP only.
        package var withoutLogin: Int?

        package init() {}
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
    /// Nil from a gateway of an earlier version.
    package var totals: Totals?
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
    /// Commands that would be sent without their text, by command; IRC only.
    package var strippedTexts: [String: Int]
    /// Commands whose text the backend would still read, by command; IRC only. None below `hosted`.
    package var passedTexts: [String: Int]
    /// Conversations that the next message in them would protect for good.
    package var latches: [LatchForecast.Rise]
    package var blinded: [Blinded]
    /// Known accounts without observations: the report cannot predict anything for them.
    package var neverObserved: [String]

    /// Applies a policy to observations.
    ///
    /// - Parameters:
    ///   - texts: the operator's choices for texts of commands.
    ///   - known: the names of all known accounts.
    package init(
        _ policy: Policy, _ observations: [ObservationRow], _ forecast: LatchForecast = LatchForecast(),
        texts: CommandTexts = CommandTexts(), known: Set<String> = []
    ) {
        self.policy = policy.name
        messages = observations.reduce(0) { $0.addingClamped($1.messages) }
        var refused: [Refused] = []
        byPerson = [:]
        byRoute = [:]
        strippedTexts = [:]
        passedTexts = [:]
        for row in observations {
            let observed = ObservedRecipient(rawValue: row.recipient) ?? .outsider
            switch observed.treatment(of: row.target, under: policy, texts) {
            case .strip: strippedTexts[row.target, default: 0].addClamped(row.messages)
            case .pass where policy.demandsProtection: passedTexts[row.target, default: 0].addClamped(row.messages)
            case .pass, .refuse, nil: break
            }
            guard let refusal = observed.refusal(under: policy, target: row.target, texts) else { continue }
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

/// Makes the part of a status that every chat protocol has.
package struct Reporter: Sendable {
    private let policies: PolicyTable
    private let latches: LatchTable
    private let tally: Tally
    private let store: any Store

    package init(policies: PolicyTable, latches: LatchTable, tally: Tally, store: any Store) {
        (self.policies, self.latches, self.tally, self.store) = (policies, latches, tally, store)
    }

    /// The current status, without requests, connected people and outsiders, which the chat protocol adds.
    ///
    /// - Parameters:
    ///   - published: devices on people's own machines whose public keys the directory has.
    ///   - connections: open connections of clients.
    ///   - texts: the operator's choices for texts of commands.
    /// - Throws: ``StoreError`` if the store cannot be read.
    package func status(
        upstream: String, policySource: String, published: Int, connections: Int, texts: CommandTexts,
        startedAt: Int64, now: Timestamp
    ) throws(StoreError) -> StatusReport {
        let evidence = try store.evidence(limit: 100_000)
        let hosted = try store.deviceAccounts(limit: .max)
        let snapshot = policies.snapshot
        let observations = try store.observations(limit: 10_000)
        let names = Set(evidence.map(\.name))
        let asked = Set(evidence.filter(\.asked).map(\.name))
        return StatusReport(
            policy: snapshot.everyone.name, policySource: policySource, accountPolicies: snapshot.accounts.count,
            upstream: upstream, uptimeSeconds: (now.wall - startedAt) / 1000, connections: connections,
            accounts: .init(
                legacy: names.subtracting(asked).count, askedForCapability: asked.count,
                custodyGateway: hosted.count { $0.roomName == nil }, custodyDevice: published,
                connectedNow: 0),
            conversations: .init(gateway: latches.count(at: .gateway), device: latches.count(at: .device)),
            shares: try shares(now), totals: totals, queue: [:], requests: .init(),
            blockers: blockers(observations, texts),
            warnings: warnings(snapshot, texts, legacy: names.subtracting(asked).count))
    }

    private var totals: StatusReport.Totals {
        var messages = StatusReport.Share(period: "since the start")
        for row in tally.all { messages.add(row.kind.name, row.count) }
        return StatusReport.Totals(messages: messages, connections: tally[.connectionsAccepted])
    }

    private func shares(_ now: Timestamp) throws(StoreError) -> [StatusReport.Share] {
        let hour = now.wall / 3_600_000
        let rows = try store.tallies(sinceHour: hour - 7 * 24)
        // Counts that are not stored yet are of this hour.
        let unwritten = tally.unwritten
        return [("this hour", 1), ("last 24 hours", 24), ("last 7 days", 7 * 24)].map { name, hours in
            var share = StatusReport.Share(period: name)
            for row in rows where row.hour > hour - Int64(hours) { share.add(row.kind, row.count) }
            for row in unwritten { share.add(row.kind.name, row.count) }
            return share
        }
    }

    /// The recipients and requests that `hosted` would refuse, those with the most messages first.
    private func blockers(_ observations: [ObservationRow], _ texts: CommandTexts) -> [StatusReport.Blocker] {
        var totals: [String: StatusReport.Blocker] = [:]
        for row in observations {
            let observed = ObservedRecipient(rawValue: row.recipient)
            guard let what = observed?.blocker(row.target, texts) else { continue }
            // Of keywords the operator has to know whose they are.
            let name = observed == .keywords ? row.sender : row.target
            let blocker = StatusReport.Blocker(what: what, name: name, messages: 0)
            totals["\(what) \(name)", default: blocker].messages.addClamped(row.messages)
        }
        return totals.values.sorted { ($1.messages, $0.name, $0.what) < ($0.messages, $1.name, $1.what) }
            .prefix(20).map { $0 }
    }

    private func warnings(_ snapshot: PolicySnapshot, _ texts: CommandTexts, legacy: Int) -> [String] {
        var warnings: [String] = []
        if legacy > 0 {
            warnings.append(
                (legacy == 1 ? "One person has a client" : "\(legacy) people have clients")
                    + " that cannot encrypt by themselves; the policy required would refuse all their messages. They need "
                    + "a sidecar, or another client.")
        }
        if snapshot.strictest.demandsProtection {
            warnings.append("Hosted means end-to-gateway: whoever runs this gateway can read hosted messages.")
            // Rooms may have another policy than everyone.
            let read = CommandText.allCases.filter { text in
                Policy.allCases.contains { texts.passed(under: $0).contains(text) }
            }
            if !read.isEmpty {
                warnings.append(
                    "The server reads texts of these commands, as the configuration says (`commands`): "
                        + read.flatMap(\.verbs).joined(separator: ", ") + ".")
            }
        }
        return warnings
    }
}
