// Commands for policies and protected conversations, and `pawl drain`. Each change is audited.
//
// `off` is refused while a latch is up, because it would send protected conversations in the clear. `Assembly` and
// `Gateway` check the same at a start and at a reload.

import ArgumentParser
import Envelope
import Foundation
import NIOSupport
import PawlConfiguration
import Protection
import Reports
import RequestQueueClient
import StorePort

/// `pawl policy`
struct PolicyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "policy", abstract: "Show, set or simulate policies.",
        subcommands: [Get.self, Set.self, Simulate.self])

    static func parse(_ name: String) throws -> Policy {
        guard let policy = Policy(name: name) else {
            let meant = NearestName.of(name, among: Policy.allCases.map(\.name) + ["default"])
            throw AdminFailure(
                .noSuchPolicy,
                "There is no policy \(name). \(meant.map { "Did you mean \($0)? " } ?? "")Use \(Policy.choices).")
        }
        return policy
    }

    /// `pawl policy get`
    struct Get: AdminCommand {
        static let configuration = CommandConfiguration(abstract: "Show the policies of everyone, accounts and rooms.")
        @OptionGroup var common: CommonOptions

        struct Report: Codable {
            var everyone: String
            /// By displayed name; the stricter policy if two entries have the same name.
            var accounts: [String: String]
            var rooms: [String: String]
            /// Accounts whose policy applies in rooms too.
            var withRooms: [String]
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let snapshot = gateway.tables.policies.snapshot
            let entries = snapshot.accounts.sorted { $0.key < $1.key }.map {
                (name: gateway.displayName($0.key), isRoom: $0.key.roomName != nil, policy: $0.value)
            }
            let withRooms = snapshot.withRooms.map(gateway.displayName).sorted()
            if common.json {
                func named(rooms: Bool) -> [String: String] {
                    Dictionary(
                        entries.filter { $0.isRoom == rooms }.map { ($0.name, $0.policy) }, uniquingKeysWith: max
                    )
                    .mapValues(\.name)
                }
                return try .json(
                    Report(
                        everyone: snapshot.everyone.name, accounts: named(rooms: false), rooms: named(rooms: true),
                        withRooms: withRooms))
            }
            let rows =
                [["everyone", "", snapshot.everyone.name]]
                + entries.map { entry in
                    let kind = entry.isRoom ? "room" : withRooms.contains(entry.name) ? "account with rooms" : "account"
                    return [entry.name, kind, entry.policy.name]
                }
            return .text(Table.text(["SCOPE", "KIND", "POLICY"], rows))
        }
    }

    /// `pawl policy set`
    struct Set: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set the policy of everyone, an account or a room. It applies at once and survives restarts.",
            discussion: """
                The policy of an account applies in conversations of two people. A room has the stricter of everyone's \
                policy and its own, whoever writes there, because one sealed message protects a room for good. \
                Conversations that become protected for good are listed first, and the change is made when you confirm it.
                """)
        @Argument(
            help: "\(Policy.choices); `default` removes an account's or a room's own.")
        var policy: String
        @Option(help: "An account, as the backend writes it: alice, @alice:example.org. Without it, everyone.")
        var account: String?
        @Option(help: "A room or conversation: messages there have the stricter of its policy and everyone's.")
        var room: String?
        @Flag(
            help:
                "With --account: the policy applies in rooms too, so rooms where it writes become protected for good."
        )
        var withRooms = false
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Do it without asking.") var yes = false
        @Flag(help: "Accept a name that this gateway has never seen.") var force = false
        @OptionGroup var common: CommonOptions

        struct Report: Codable {
            /// The account, the room, or `everyone`.
            var scope: String
            /// The policy; `default` if the scope's own policy was removed.
            var policy: String
            /// Whether the gateway has ever seen the name.
            var known: Bool
            /// What the change covers at present.
            var covers: KnownNames.Coverage
        }

        func validate() throws {
            if account != nil, room != nil { throw ValidationError("Name an account or a room, not both.") }
            if account?.isEmpty == true || room?.isEmpty == true {
                throw ValidationError("The name is empty. For everyone, leave --account and --room out.")
            }
            if withRooms, account == nil || policy == "default" {
                throw ValidationError("Use --with-rooms together with --account and a policy.")
            }
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let names = try KnownNames(gateway)
            let new = policy == "default" ? nil : try PolicyCommand.parse(policy)
            let (scope, isKnown) = try scope(names, gateway)
            if new == nil {
                guard let scope else {
                    throw AdminFailure(
                        .everyonesPolicy,
                        "Only an account or a room can go back to everyone's policy: use --account or --room.")
                }
                guard gateway.tables.policies.snapshot.accounts[scope] != nil else {
                    throw AdminFailure(
                        .noOwnPolicy, "\(gateway.displayName(scope)) has no policy of its own. See: pawl policy get.")
                }
            }
            if let new, !new.takesPart, !gateway.tables.latches.isEmpty {
                throw AdminFailure(
                    .conversationsProtected,
                    "\(gateway.tables.latches.count) conversations are protected, and off would send them in the "
                        + "clear. Use observe, which keeps them protected, or reset them first: "
                        + "pawl conversations list, pawl conversations reset A B.")
            }
            if let new, let question = try question(new, for: scope, gateway) { return question }
            try gateway.setPolicy(new, for: scope, withRooms: withRooms)
            let report = Report(
                scope: scope.map(gateway.displayName) ?? "everyone", policy: new?.name ?? "default", known: isKnown,
                covers: names.coverage(of: scope, withRooms: withRooms))
            return common.json ? try .json(report) : .text(text(report, new, gateway))
        }

        private func text(_ report: Report, _ new: Policy?, _ gateway: Gateway) -> String {
            let name = report.scope == "everyone" ? "Everyone" : report.scope
            var text = new.map { "\(name) now has the policy \($0.name)." } ?? "\(name) now has everyone's policy."
            text +=
                report.known
                ? " It covers \(report.covers.text) now."
                : " This gateway has never seen that name, so it protects nobody now."
            if let new, account != nil, new.sealsEndToGateway {
                text +=
                    withRooms
                    ? " It applies in rooms too: each room that this account writes in is protected for good."
                    : " It applies in conversations of two people; rooms keep everyone's policy or their own."
            }
            text += Self.whatStays(new, gateway)
            if let new, new.demandsProtection {
                text += " Hosted is end-to-gateway encryption: the operator of this gateway can read the messages."
            }
            return text
        }

        /// Text about conversations that stay protected under a weaker policy; empty if there are none.
        ///
        /// - Parameter new: nil if a policy was removed.
        private static func whatStays(_ new: Policy?, _ gateway: Gateway) -> String {
            let count = gateway.tables.latches.count
            guard count > 0, new?.sealsEndToGateway != true else { return "" }
            return (count == 1 ? " One conversation stays protected" : " \(count) conversations stay protected")
                + " whatever the policy is, until an operator resets it: pawl conversations list."
        }

        /// Asks before conversations become protected for good; nil if none would, or if the operator has agreed.
        private func question(_ new: Policy, for id: AccountID?, _ gateway: Gateway) throws -> AdminAnswer? {
            let forecast = try gateway.latchForecast { policies in
                if let id { policies.set(new, for: id, withRooms: withRooms) } else { policies.everyone = new }
            }
            let words = "policy \(id?.text ?? "everyone") \(new.name)\(withRooms ? " with rooms" : "")"
            return try gateway.question(
                forecast, words, asJSON: common.json,
                unless: yes || gateway.confirmations.accept(confirm, for: words))
        }

        /// Returns the account or room of the command, nil for everyone, and whether the gateway has seen it.
        ///
        /// - Throws: ``AdminFailure`` if the name is invalid, or is unknown and `--force` is not given.
        private func scope(_ names: KnownNames, _ gateway: Gateway) throws -> (AccountID?, isKnown: Bool) {
            guard let name = account ?? room else { return (nil, true) }
            let own = gateway.tables.policies.snapshot.accounts
            // Names that an earlier version accepted can still be removed.
            if policy == "default", let account,
                let earlier = [AccountID.services(account), AccountID(text: account)].first(where: { own[$0] != nil })
            {
                return (earlier, names.hasSeen(earlier))
            }
            if name.contains(" ") {
                throw AdminFailure(
                    .nameWithSpace, "No account and no room has a space in its name.")
            }
            try gateway.front.checkNames(account: account, room: room)
            switch room == nil ? names.account(name) : names.room(name) {
            case .known(let scope): return (scope, names.hasSeen(scope))
            case .unknown(let scope, let nearest):
                guard !force else { return (scope, false) }
                throw unknown(name, nearest, names)
            }
        }

        private func unknown(_ name: String, _ nearest: [String], _ names: KnownNames) -> AdminFailure {
            var code: FailureCode = room == nil ? .unknownAccount : .unknownRoom
            let noun = room == nil ? "account" : "room"
            var text = "This gateway knows no \(noun) \(name), so nothing has changed."
            if room == nil, names.nicks.contains(name.lowercased()) {
                code = .nickWithoutAccount
                text +=
                    " \(name) is the nick of someone without an account: such people have everyone's policy."
            }
            if !nearest.isEmpty { text += " Known and similar: \(nearest.joined(separator: ", "))." }
            text += " To set it before the first login, exactly as the backend writes the name, add --force."
            return AdminFailure(code, text)
        }
    }

    /// `pawl policy simulate`
    struct Simulate: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Count the observed messages that stricter policies would have refused.",
            discussion: """
                The report names people, routes and commands, the conversations that would become protected for good, and \
                the people who could no longer read them. For IRC it counts the commands that would lose their text. While nothing is protected, the gateway does not read bodies of \
                HTTP requests, so it does not count text that the mapping does not find.
                """)
        @Argument(help: "One policy; without it, all that are stricter than the one in force.") var policy: String?
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            try gateway.writeDown()
            let observations = try gateway.store.observations(limit: Gateway.observationLimit)
            let known = Swift.Set(try gateway.store.evidence(limit: 100_000).map(\.name))
            let now = gateway.tables.policies.snapshot.everyone
            let policies =
                try policy.map { [try PolicyCommand.parse($0)] } ?? Policy.allCases.filter { $0 > max(now, .observe) }
            let reports = policies.map { policy in
                var changed = gateway.tables.policies.snapshot
                changed.everyone = policy
                let forecast = gateway.latchForecast(to: changed, observations)
                return SimulationReport(
                    policy, observations, forecast, texts: gateway.front.commandTexts, known: known)
            }
            return common.json ? try .json(reports) : .text(reports.map(StatusText.text).joined(separator: "\n\n"))
        }
    }
}

/// `pawl conversations`
struct ConversationsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "conversations", abstract: "List protected conversations, or end the protection of one.",
        subcommands: [List.self, Reset.self])

    /// `pawl conversations list`
    struct List: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "List protected conversations. Only an operator can end their protection.")
        @OptionGroup var common: CommonOptions
        @Option(help: "At most this many.") var limit = RowLimit(1000)

        struct Row: Codable {
            var first: String
            var second: String
            var protection: String
            var since: String
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let rows = try gateway.store.conversations(limit: limit.rows).map {
                Row(
                    first: gateway.displayName($0.id.first), second: gateway.displayName($0.id.second),
                    protection: $0.latch.name,
                    since: Table.time($0.since))
            }
            if common.json { return try .json(rows) }
            return .text(
                Table.text(
                    ["ONE", "OTHER", "PROTECTION", "SINCE"],
                    rows.map { [$0.first, $0.second, $0.protection, $0.since] }))
        }
    }

    /// `pawl conversations reset`
    struct Reset: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "End the protection of a conversation or a room. On IRC its members are notified. It is audited.")
        @Argument(help: "One account, the nick of a connected person without an account, or a room.") var first: String
        @Argument(help: "The other account or nick; leave it out for a room.") var second: String?
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let id = try gateway.front.conversation(first, with: second)
            let names = second.map { "\(first) and \($0)" } ?? first
            guard gateway.tables.latches.latch(of: id) > .plaintext else {
                throw AdminFailure(
                    .notProtected, "There is no protected conversation of \(names). See: pawl conversations list.")
            }
            let words = "reset \(id.first.text) \(id.second.text)"
            guard gateway.confirmations.accept(confirm, for: words) else {
                return gateway.question(
                    "This lets messages of \(names) go in the clear again, where the policy allows it.", words)
            }
            try gateway.reset(id)
            return try .done("The protection is ended. \(gateway.front.resetNotice)", json: common.json)
        }
    }
}

/// `pawl drain`
struct Drain: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "Accept no more clients, and stop when the last one has disconnected.")
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let count = gateway.server.connectionCount
        await gateway.drain()
        var text = "No more clients are accepted. \(count) are still connected; the gateway stops when they have left."
        let waiting = await gateway.front.waitingWrites()
        if waiting > 0 {
            text += " \(waiting) writes wait; those that are not sent by then are sent after the next start."
        }
        return try .done(text, json: common.json)
    }
}
