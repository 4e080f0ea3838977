// Commands that change something. Each is audited.

import ArgumentParser
import Envelope
import Foundation
import IRCGateway
import NIOSupport
import Protection
import RequestQueueClient
import StorePort

/// `pawl policy`
struct PolicyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "policy", abstract: "Show, set or try out policies.",
        subcommands: [Get.self, Set.self, Simulate.self])

    static func parse(_ name: String) throws -> Policy {
        guard let policy = Policy(name: name) else {
            throw AdminFailure("There is no policy \(name). Use off, observe, opportunistic, hosted or required.")
        }
        return policy
    }

    /// `pawl policy get`
    struct Get: AdminCommand {
        static let configuration = CommandConfiguration(abstract: "Show the policy of everyone and of accounts.")
        @OptionGroup var common: CommonOptions

        struct Report: Codable {
            var everyone: String
            /// By name; if two entries are shown under one name, the stricter policy.
            var accounts: [String: String]
            var rooms: [String: String]
            /// Accounts whose policy counts in rooms too.
            var withRooms: [String]
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let snapshot = gateway.environment.policies.snapshot
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
            abstract: "Set the policy of everyone, of an account or of a room. It holds at once and after a restart.",
            discussion: """
                The policy of an account counts in conversations of two people. A room has the stricter of everyone's policy \
                and its own, whoever speaks there, because one sealed message protects a room for good. Conversations that \
                become protected for good are listed first, and the change is made when you confirm it.
                """)
        @Argument(
            help: "off, observe, opportunistic, hosted or required; `default` removes an account's or a room's own.")
        var policy: String
        @Option(help: "An account, as the backend writes it: alice, @alice:example.org. Without it, everyone.")
        var account: String?
        @Option(help: "A room or conversation: what is written there has the stricter of its policy and everyone's.")
        var room: String?
        @Flag(
            help:
                "With --account: its policy counts in rooms too, so that rooms that it writes in are protected for good."
        )
        var withRooms = false
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Do it without asking.") var yes = false
        @Flag(help: "Take a name that this gateway has never seen.") var force = false
        @OptionGroup var common: CommonOptions

        struct Report: Codable {
            /// The account, the room, or `everyone`.
            var scope: String
            /// The policy; `default` after its own was removed.
            var policy: String
            /// Whether the gateway has ever seen the name.
            var known: Bool
            /// What the change covers now.
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
                        "Only an account or a room can go back to everyone's policy: use --account or --room.")
                }
                guard gateway.environment.policies.snapshot.accounts[scope] != nil else {
                    throw AdminFailure("\(gateway.displayName(scope)) has no policy of its own. See: pawl policy get.")
                }
            }
            if let new, !new.takesPart, !gateway.environment.latches.isEmpty {
                throw AdminFailure(
                    "\(gateway.environment.latches.count) conversations are protected, and off would send them in the "
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
                    ? " It counts in rooms too: each room that this account writes in is protected for good."
                    : " It counts in conversations of two people; rooms keep everyone's policy or their own."
            }
            text += Self.whatStays(new, gateway)
            if let new, new.demandsProtection {
                text += " Hosted is end-to-gateway: whoever runs this gateway can read it."
            }
            return text
        }

        /// A policy that is taken back undoes nothing, and says so.
        ///
        /// - Parameter new: nil if a policy was removed.
        private static func whatStays(_ new: Policy?, _ gateway: Gateway) -> String {
            let count = gateway.environment.latches.count
            guard count > 0, new?.sealsEndToGateway != true else { return "" }
            return (count == 1 ? " One conversation stays protected" : " \(count) conversations stay protected")
                + " whatever the policy is, until an operator resets it: pawl conversations list."
        }

        /// Asks before conversations become protected for good; nil if none would, or the operator has agreed.
        private func question(_ new: Policy, for id: AccountID?, _ gateway: Gateway) throws -> AdminAnswer? {
            var changed = gateway.environment.policies.snapshot
            if let id { changed.set(new, for: id, withRooms: withRooms) } else { changed.everyone = new }
            let forecast = try gateway.latchForecast(to: changed)
            let words = "policy \(id?.text ?? "everyone") \(new.name)\(withRooms ? " with rooms" : "")"
            guard !forecast.rises.isEmpty, !yes, !gateway.confirmations.accept(confirm, for: words) else { return nil }
            return try gateway.question(forecast, words, asJSON: common.json)
        }

        /// Whom the command is about; nil for everyone.
        ///
        /// - Throws: ``AdminFailure`` if nobody and nothing of that name is known.
        private func scope(_ names: KnownNames, _ gateway: Gateway) throws -> (AccountID?, isKnown: Bool) {
            guard let name = account ?? room else { return (nil, true) }
            let isIRC = gateway.json == nil
            let own = gateway.environment.policies.snapshot.accounts
            // What an earlier version accepted can be taken back.
            if policy == "default", let account,
                let earlier = [AccountID.services(account), AccountID(text: account)].first(where: { own[$0] != nil })
            {
                return (earlier, names.hasSeen(earlier))
            }
            if name.contains(" ") { throw AdminFailure("No account and no room has a space in its name.") }
            if let account, isIRC, let first = account.first, "#&+!".contains(first) {
                throw AdminFailure("\(account) is the name of a room: use --room '\(account)'.")
            }
            if let room, isIRC, room.first.map({ $0.isLetter || $0.isNumber }) != false {
                throw AdminFailure("\(room) is not the name of a room: give it with its prefix, as '#room'.")
            }
            switch room == nil ? names.account(name) : names.room(name) {
            case .known(let scope): return (scope, names.hasSeen(scope))
            case .unknown(let scope, let nearest):
                guard !force else { return (scope, false) }
                throw AdminFailure(unknown(name, nearest, names))
            }
        }

        private func unknown(_ name: String, _ nearest: [String], _ names: KnownNames) -> String {
            let noun = room == nil ? "account" : "room"
            var text = "This gateway knows no \(noun) \(name), so nothing has changed."
            if room == nil, names.nicks.contains(name.lowercased()) {
                text +=
                    " \(name) is the nick of somebody without an account: such people have everyone's policy."
            }
            if !nearest.isEmpty { text += " Known and similar: \(nearest.joined(separator: ", "))." }
            return text + " To set it before the first login, exactly as the backend writes the name, add --force."
        }
    }

    /// `pawl policy simulate`
    struct Simulate: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Count what stricter policies would have refused, from what was observed.",
            discussion: """
                It names people, routes and commands, the conversations that would become protected for good, and who \
                could not read them any more. While nothing is protected, bodies of HTTP requests are not read: texts that \
                stand where the mapping does not find them are not counted.
                """)
        @Argument(help: "One policy; without it, all that are stricter than the one in force.") var policy: String?
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            try gateway.writeDown()
            let observations = try gateway.store.observations(limit: Gateway.observationLimit)
            let known = Swift.Set(try gateway.store.evidence(limit: 100_000).map(\.name))
            let now = gateway.environment.policies.snapshot.everyone
            let policies =
                try policy.map { [try PolicyCommand.parse($0)] } ?? Policy.allCases.filter { $0 > max(now, .observe) }
            let reports = policies.map { policy in
                var changed = gateway.environment.policies.snapshot
                changed.everyone = policy
                let forecast = gateway.latchForecast(to: changed, observations)
                return SimulationReport(policy, observations, forecast, known: known)
            }
            return common.json ? try .json(reports) : .text(reports.map(StatusText.text).joined(separator: "\n\n"))
        }
    }
}

/// `pawl conversations`
struct ConversationsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "conversations", abstract: "List protected conversations, or lower the latch of one.",
        subcommands: [List.self, Reset.self])

    /// `pawl conversations list`
    struct List: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "List conversations that never slip back by themselves.")
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
            abstract: "Lower the latch of a conversation or a room. Everybody in it is told; it is audited.")
        @Argument(help: "One account, the nick of somebody who is here without one, or a room.") var first: String
        @Argument(help: "The other one; not for a room.") var second: String?
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let isRoom =
                second == nil && (gateway.json != nil || first.first.map { !$0.isLetter && !$0.isNumber } == true)
            if gateway.json != nil, second != nil {
                throw AdminFailure("Name one conversation, as pawl conversations list has it.")
            }
            guard isRoom || second != nil else { throw AdminFailure("Name both people, or one room with its prefix.") }
            let one = isRoom ? gateway.room(first) : gateway.account(named: first)
            let id = ConversationID(one, second.map(gateway.account) ?? one)
            let names = second.map { "\(first) and \($0)" } ?? first
            guard gateway.environment.latches.latch(of: id) > .plaintext else {
                throw AdminFailure("There is no protected conversation of \(names). See: pawl conversations list.")
            }
            let words = "reset \(id.first.text) \(id.second.text)"
            guard gateway.confirmations.accept(confirm, for: words) else {
                let token = gateway.confirmations.issue(for: words)
                return AdminAnswer(
                    exit: ExitStatus.needsConfirmation, out: "",
                    error: "This lets messages of \(names) go in the clear again, where the policy "
                        + "allows it. To confirm, add: --confirm \(token)", confirmation: token)
            }
            try gateway.reset(id)
            return .text(
                gateway.json == nil
                    ? "The latch is lowered. Those who are connected have been told."
                    : "The latch is lowered. Nobody can be told of it by HTTP: tell them yourself.")
        }
    }
}

/// `pawl drain`
struct Drain: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "Take no more clients, and stop when the last one has gone.")
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let count = gateway.server.connectionCount
        await gateway.drain()
        var text = "No more clients are taken. \(count) are still connected; the gateway stops when they have gone."
        if let report = await gateway.json?.writes.queue.report(), report.depth > 0 {
            text += " \(report.depth) writes wait; what is not sent by then is sent by the next start."
        }
        return .text(text)
    }
}
