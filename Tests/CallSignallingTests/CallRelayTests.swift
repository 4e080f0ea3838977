import CallSignalling
import Protection
import TestKit
import Testing

/// The relay of a gateway: devices without keys, a clock, no sockets.
@Suite struct CallRelayTests {
    /// A gateway, and what each device has fetched.
    private final class World {
        var relay = CallRelay<String>()
        var now = Timestamp(monotonic: 1_000_000_000, wall: 1_700_000_000_000)
        private var cursors: [RelayedDevice: UInt64] = [:]
        private var numbers: [String: Int] = [:]

        func pass(_ milliseconds: Int64) {
            now.wall += milliseconds
            now.monotonic += milliseconds * 1_000_000
        }

        private static func device(_ text: String) -> RelayedDevice {
            let parts = text.split(separator: "/").map(String.init)
            return RelayedDevice(account: .services(parts[0]), name: parts[1])
        }

        /// Posts a message of a device, `alice/phone`.
        ///
        /// - Parameter number: nil for the next one.
        /// - Returns: nil if it was taken.
        @discardableResult
        func post(
            _ kind: RelayedMessage<String>.Kind, _ payload: String = "", from: String, to: String, id: String = "room",
            call: String = "c", number: Int? = nil, size: Int? = nil
        ) -> CallRelayRefusal? {
            guard let route = CallRoute(id) else { return .noCall }
            let place = "\(from) \(to) \(call)"
            let message = RelayedMessage(
                id: id, route: route, call: call, to: .services(to), kind: kind,
                number: number ?? numbers[place, default: 0],
                payload: payload, size: size ?? payload.utf8.count)
            do throws(CallRelayRefusal) {
                try relay.post(message, from: Self.device(from), now: now)
            } catch {
                return error
            }
            if number == nil { numbers[place, default: 0] += 1 }
            return nil
        }

        /// What a device fetches, in words.
        func fetch(_ text: String) -> [String] {
            let device = Self.device(text)
            var log: [String] = []
            while true {
                let page = relay.entries(for: device, after: cursors[device] ?? 0, now: now)
                log += page.entries.map { "\($0.message.kind) \($0.message.payload ?? $0.message.endState ?? "-")" }
                cursors[device] = page.entries.last?.sequence ?? cursors[device]
                if !page.more { return log }
            }
        }
    }

    private let world = World()
    /// How long an offer and an end wait, in milliseconds.
    private static let (life, endLife) = (CallTimes().message * 1000, CallTimes().end * 1000)

    @Test func aCallIsRelayedInOrder() {
        #expect(world.post(.sdpOffer, "o", from: "alice/phone", to: "bob") == nil)
        #expect(world.post(.iceCandidate, "1", from: "alice/phone", to: "bob") == nil)
        #expect(world.post(.iceCandidate, "2", from: "alice/phone", to: "bob") == nil)
        #expect(world.fetch("bob/phone") == ["sdpOffer o", "iceCandidate 1", "iceCandidate 2"])
        #expect(world.fetch("bob/phone").isEmpty)
        // A candidate before the answer.
        #expect(world.post(.iceCandidate, "9", from: "bob/phone", to: "alice") == nil)
        #expect(world.post(.sdpAnswer, "a", from: "bob/phone", to: "alice") == nil)
        #expect(world.fetch("alice/phone") == ["iceCandidate 9", "sdpAnswer a"])
        #expect(world.fetch("alice/laptop").isEmpty, "another device of the caller gets nothing of the call")
        // The other side offers again.
        #expect(world.post(.sdpOffer, "o2", from: "bob/phone", to: "alice") == nil)
        #expect(world.post(.sdpAnswer, "a2", from: "alice/phone", to: "bob") == nil)
        #expect(world.fetch("alice/phone") == ["sdpOffer o2"] && world.fetch("bob/phone") == ["sdpAnswer a2"])
        #expect(world.post(.end, "bye", from: "bob/phone", to: "alice") == nil)
        #expect(world.fetch("alice/phone") == ["end bye"])
    }

    @Test func numbersKeepTheOrderAndCopiesDoNothing() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        #expect(world.post(.iceCandidate, "2", from: "alice/phone", to: "bob", number: 2) == .outOfOrder(next: 1))
        #expect(world.post(.sdpOffer, "o", from: "alice/phone", to: "bob", number: 0) == nil)
        #expect(world.post(.iceCandidate, "1", from: "alice/phone", to: "bob", number: 1) == nil)
        #expect(world.post(.iceCandidate, "2", from: "alice/phone", to: "bob", number: 2) == nil)
        #expect(world.fetch("bob/phone") == ["sdpOffer o", "iceCandidate 1", "iceCandidate 2"])
        // Another call under the same id counts for itself, and nothing begins with a later number.
        #expect(world.post(.sdpOffer, from: "alice/phone", to: "bob", call: "d", number: 1) == .noCall)
        #expect(world.post(.sdpOffer, from: "alice/phone", to: "bob", call: "d", number: 0) == nil)
    }

    @Test func anOfferIsNotDeliveredLate() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        world.pass(Self.life - 1)
        #expect(world.fetch("bob/phone") == ["sdpOffer o"])
        world.pass(1)
        #expect(world.fetch("bob/laptop").isEmpty)
        // An end is still of use then.
        world.post(.end, "e", from: "alice/phone", to: "bob")
        world.pass(Self.endLife - 1)
        #expect(world.fetch("bob/laptop") == ["end e"])
        world.pass(1)
        #expect(world.fetch("bob/tablet").isEmpty)
    }

    @Test func theFirstAnswerHasTheCallAndTheOtherDevicesStopRinging() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        for device in ["bob/phone", "bob/laptop"] { #expect(world.fetch(device) == ["sdpOffer o"]) }
        #expect(world.post(.sdpAnswer, "a", from: "bob/laptop", to: "alice") == nil)
        #expect(world.fetch("bob/phone") == ["answered -"])
        #expect(world.fetch("bob/tablet") == ["answered -"], "it never gets the offer")
        #expect(world.fetch("bob/laptop").isEmpty)
        #expect(world.post(.sdpAnswer, "late", from: "bob/phone", to: "alice") == .otherDevice)
        #expect(world.post(.end, "", from: "bob/phone", to: "alice") == .otherDevice)
        #expect(world.post(.iceCandidate, "1", from: "alice/tablet", to: "bob") == .otherDevice)
        // From now on only the device in the call gets the messages.
        world.post(.iceCandidate, "1", from: "alice/phone", to: "bob")
        #expect(world.fetch("bob/phone").isEmpty && world.fetch("bob/laptop") == ["iceCandidate 1"])
        #expect(world.fetch("alice/phone") == ["sdpAnswer a"])
    }

    /// Candidates come while a device answers: the answer does not cost it those that it has not fetched.
    @Test func theAnsweringDeviceGetsWhatItHasNotFetched() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        world.post(.iceCandidate, "1", from: "alice/phone", to: "bob")
        for device in ["bob/phone", "bob/laptop"] { #expect(world.fetch(device) == ["sdpOffer o", "iceCandidate 1"]) }
        for number in 2..<5 { world.post(.iceCandidate, "\(number)", from: "alice/phone", to: "bob") }
        #expect(world.post(.sdpAnswer, "a", from: "bob/laptop", to: "alice") == nil)
        world.post(.iceCandidate, "5", from: "alice/phone", to: "bob")
        #expect(world.fetch("bob/laptop") == (2..<6).map { "iceCandidate \($0)" })
        #expect(world.fetch("bob/phone") == ["answered -"] && world.fetch("bob/tablet") == ["answered -"])
        // It has them, so they are removed.
        _ = world.fetch("bob/laptop")
        let laptop = RelayedDevice(account: .services("bob"), name: "laptop")
        #expect(world.relay.entries(for: laptop, after: 0, now: world.now).entries.isEmpty)
    }

    @Test func anEndIsFinalAndIdempotent() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        world.post(.iceCandidate, "1", from: "alice/phone", to: "bob")
        // A rejection: the others stop ringing.
        #expect(world.post(.end, "no", from: "bob/laptop", to: "alice") == nil)
        #expect(world.fetch("bob/phone") == ["end no"] && world.fetch("bob/laptop").isEmpty)
        #expect(world.fetch("alice/phone") == ["end no"])
        #expect(world.post(.end, "again", from: "bob/laptop", to: "alice") == nil)
        #expect(world.post(.end, "again", from: "alice/phone", to: "bob") == nil)
        #expect(world.fetch("alice/phone").isEmpty && world.fetch("bob/phone").isEmpty)
        for kind in [RelayedMessage<String>.Kind.sdpOffer, .sdpAnswer, .iceCandidate, .ciphertext, .groupControl] {
            #expect(world.post(kind, from: "alice/phone", to: "bob") == .ended)
        }
        // An end of a call that has never begun.
        #expect(world.post(.end, from: "alice/phone", to: "bob", call: "never") == nil)
        #expect(world.fetch("bob/phone").isEmpty && world.relay.count == 0)
    }

    @Test func whatNobodyAnswersEnds() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        world.pass(CallTimes().answering)
        #expect(world.relay.takeWoken() == [.services("bob")])
        world.relay.prune(world.now)
        #expect(world.relay.takeWoken() == [.services("alice"), .services("bob")])
        #expect(world.relay.takeWoken().isEmpty)
        #expect(world.fetch("alice/phone") == ["end userInitiatedUnanswered"])
        #expect(world.fetch("bob/phone") == ["end partnerInitiatedUnanswered"])
        #expect(world.post(.sdpAnswer, from: "bob/phone", to: "alice") == .ended)
    }

    /// Whatever is called first after the ringing, the end is reported: a fetch of somebody else, or a refused message.
    @Test(arguments: [false, true]) func anEndThatOthersBringAboutIsReported(_ isFetch: Bool) {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        _ = world.relay.takeWoken()
        world.pass(CallTimes().answering)
        if isFetch {
            #expect(world.fetch("carol/phone").isEmpty)
        } else {
            #expect(world.post(.sdpAnswer, from: "carol/phone", to: "dave") == .noCall)
        }
        #expect(world.relay.takeWoken() == [.services("alice"), .services("bob")])
    }

    @Test func whatHasNoCallIsRefused() {
        for kind in [RelayedMessage<String>.Kind.sdpAnswer, .iceCandidate, .answered] {
            #expect(world.post(kind, from: "alice/phone", to: "bob") == .noCall)
        }
        #expect(world.post(.sdpOffer, from: "alice/phone", to: "alice") == .noCall)
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        // Nobody answers an own offer, and the called one does not offer first.
        #expect(world.post(.sdpAnswer, from: "alice/phone", to: "bob") == .noCall)
        #expect(world.post(.sdpOffer, from: "bob/phone", to: "alice") == .noCall)
        // Others are not in the call, whatever they name.
        #expect(world.post(.iceCandidate, from: "mallory/phone", to: "bob") == .noCall)
        #expect(world.post(.sdpAnswer, from: "mallory/phone", to: "alice") == .noCall)
        #expect(world.post(.end, from: "mallory/phone", to: "bob") == nil)
        #expect(world.fetch("bob/phone") == ["sdpOffer o"])
    }

    /// All spellings of an id are one call, and each message has the spelling of its sender.
    @Test func theRouteCountsAndNotItsSpelling() {
        let id = "0A1B2C3D-0000-4000-8000-00000000000A"
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob", id: id)
        #expect(world.post(.sdpAnswer, "a", from: "bob/phone", to: "alice", id: "#" + id.lowercased()) == nil)
        let entry = world.relay.entries(
            for: RelayedDevice(account: .services("bob"), name: "x"), after: 0, now: world.now)
        #expect(entry.entries.first?.message.kind == .answered)
        #expect(entry.entries.first?.message.id == "#" + id.lowercased())
        // The end that the relay makes has the spelling of the one who has begun the call.
        world.post(.sdpOffer, "o", from: "alice/phone", to: "carol", id: "#conf-" + id, call: "d")
        world.pass(CallTimes().answering)
        let end = world.relay.entries(
            for: RelayedDevice(account: .services("carol"), name: "x"), after: 0, now: world.now)
        #expect(end.entries.map(\.message.kind) == [.end] && end.entries.first?.message.id == "#conf-" + id)
    }

    /// Names that are equal as texts, and not byte by byte, are two accounts.
    @Test func accountsAreComparedByteByByte() {
        let (composed, decomposed) = ("\u{E9}", "e\u{301}")
        world.post(.sdpOffer, "o", from: "alice/phone", to: composed)
        #expect(world.fetch("\(decomposed)/phone").isEmpty)
        #expect(world.post(.sdpAnswer, "forged", from: "\(decomposed)/phone", to: "alice") == .noCall)
        #expect(world.fetch("\(composed)/phone") == ["sdpOffer o"])
        #expect(world.fetch("alice/phone").isEmpty)
    }

    @Test func boxesAreBounded() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        var taken = 1
        while world.post(.iceCandidate, "x", from: "alice/phone", to: "bob") == nil { taken += 1 }
        #expect(taken == CallRelayLimits.senderEntries)
        #expect(world.post(.iceCandidate, "x", from: "alice/phone", to: "bob") == .full)
        // Others still reach the account, and the sender others.
        #expect(world.post(.sdpOffer, "o", from: "carol/phone", to: "bob") == nil)
        #expect(world.post(.sdpOffer, "o", from: "alice/phone", to: "dave") == nil)
        #expect(world.fetch("bob/phone").count == taken + 1)
        world.pass(Self.life)
        #expect(world.post(.iceCandidate, "y", from: "alice/phone", to: "bob") == nil)
        // A payload that is too long, and bytes of one sender.
        let size = CallRelayLimits.payloadLimit
        #expect(world.post(.iceCandidate, from: "alice/phone", to: "bob", size: size + 1) == .full)
        var bytes = 0
        while world.post(.iceCandidate, from: "alice/phone", to: "bob", size: size) == nil { bytes += size }
        #expect(bytes <= CallRelayLimits.senderBytes && bytes > CallRelayLimits.senderBytes - 2 * size)
        // Calls of one account.
        var calls = 0
        while world.post(.sdpOffer, from: "alice/phone", to: "erin \(calls)", call: "\(calls)") == nil { calls += 1 }
        #expect(calls == CallRelayLimits.accountSides - 2)
        // Devices of one call.
        world.post(.sdpOffer, from: "frank/phone", to: "bob")
        var devices = 0
        while world.post(.iceCandidate, "x", from: "bob/\(devices)", to: "frank") == nil { devices += 1 }
        #expect(devices == CallRelayLimits.senders - 1)
    }

    /// Neither with calls that it never lets ring nor with long ends does one account keep others from calling.
    @Test func oneAccountFillsNoTableOfAll() {
        var calls = 0
        while world.post(.ciphertext, from: "mallory/phone", to: "bob", call: "\(calls)") == nil { calls += 1 }
        #expect(calls == CallRelayLimits.pairSides)
        #expect(world.post(.ciphertext, from: "bob/phone", to: "mallory", call: "back") == .full)
        #expect(world.post(.sdpOffer, from: "alice/phone", to: "bob") == nil)
        #expect(world.post(.sdpOffer, from: "bob/phone", to: "carol") == nil)
        #expect(world.post(.end, from: "mallory/phone", to: "bob", call: "0") == nil)
        #expect(world.post(.ciphertext, from: "mallory/phone", to: "bob", call: "next") == nil)
        // Bytes in the boxes of many.
        let size = CallRelayLimits.payloadLimit
        var sent = 0
        while world.post(.sdpOffer, from: "mallory/phone", to: "victim \(sent)", call: "long") == nil,
            world.post(.end, from: "mallory/phone", to: "victim \(sent)", call: "long", size: size) == nil
        { sent += 1 }
        #expect(sent == CallRelayLimits.accountBytes / size)
        #expect(world.post(.sdpOffer, from: "alice/phone", to: "dave", size: size) == nil)
        world.pass(Self.endLife)
        #expect(world.post(.sdpOffer, from: "mallory/phone", to: "dave", size: size) == nil)
    }

    /// An end takes the place of what waits of its call, so a full box does not refuse it.
    @Test func aFullBoxTakesTheEnd() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        while world.post(.iceCandidate, "x", from: "alice/phone", to: "bob") == nil {}
        #expect(world.post(.end, "e", from: "alice/phone", to: "bob") == nil)
        #expect(world.fetch("bob/phone") == ["end e"])
        // Ends of other calls do not make room.
        var ends = 1
        while world.post(.sdpOffer, "o", from: "alice/phone", to: "bob", call: "\(ends)") == nil,
            world.post(.end, "e", from: "alice/phone", to: "bob", call: "\(ends)") == nil
        { ends += 1 }
        #expect(ends == CallRelayLimits.senderEntries)
    }

    /// What a device has is removed, if it was for this device only; numbers rise also after a restart.
    @Test func entriesOfTheDeviceInTheCallAreRemovedWhenItHasThem() {
        world.post(.sdpOffer, "o", from: "alice/phone", to: "bob")
        #expect(world.fetch("bob/phone") == ["sdpOffer o"])
        world.post(.sdpAnswer, "a", from: "bob/phone", to: "alice")
        for round in 0..<4 {
            for number in 0..<200 {
                #expect(world.post(.iceCandidate, "\(round) \(number)", from: "alice/phone", to: "bob") == nil)
            }
            #expect(world.fetch("bob/phone").count == 200)
            _ = world.fetch("bob/phone")
        }
        var other = CallRelay<String>()
        world.pass(1)
        guard let route = CallRoute("room") else { return }
        let message = RelayedMessage(
            id: "room", route: route, call: "e", to: .services("bob"), kind: .sdpOffer, number: 0, payload: "o", size: 1
        )
        let device = RelayedDevice(account: .services("bob"), name: "phone")
        let before = world.relay.entries(for: device, after: 0, now: world.now).entries.last?.sequence ?? 0
        #expect(throws: Never.self) {
            try other.post(message, from: RelayedDevice(account: .services("alice"), name: "x"), now: world.now)
        }
        #expect(other.takeWoken() == [.services("bob")])
        let after = other.entries(for: device, after: 0, now: world.now).entries.last?.sequence ?? 0
        #expect(after > before)
    }

    /// Under any order of events nothing is delivered twice, late, to another account or after the end, and all bounds
    /// hold.
    @Test(arguments: [UInt64(1), 2, 3, 4, 5, 6])
    func anythingMayHappen(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let people = ["alice", "bob", "carol"]
        let kinds = RelayedMessage<String>.Kind.allCases
        var posted: [String: (to: String, at: Int64)] = [:]
        var seen: Set<String> = []
        for number in 0..<3000 {
            world.pass(Int64(random.below(400)))
            let (from, to) = (people[random.below(3)], people[random.below(3)])
            let device = "\(from)/\(random.below(3))"
            let (kind, call) = (kinds[random.below(kinds.count)], "c\(number / 150).\(random.below(2))")
            let fixed = random.below(5) == 0 ? random.below(6) : nil
            if world.post(kind, "#\(number)", from: device, to: to, call: call, number: fixed) == nil {
                posted["#\(number)"] = (to, world.now.wall)
            }
            guard random.below(3) == 0 else { continue }
            let reader = "\(people[random.below(3)])/\(random.below(3))"
            for line in world.fetch(reader) {
                #expect(seen.insert("\(reader) \(line)").inserted || line.contains("nanswered") || line == "answered -")
                guard let text = line.split(separator: " ").last.map(String.init), let message = posted[text] else {
                    continue
                }
                let isEnd = line.hasPrefix("end ")
                #expect(message.to == reader.prefix { $0 != "/" } || isEnd)
                let age = world.now.wall - message.at
                #expect(age < (isEnd ? Self.endLife : Self.life))
            }
        }
        world.pass(CallRelayLimits.idleTime)
        world.relay.prune(world.now)
        #expect(world.relay.count == 0)
    }
}
