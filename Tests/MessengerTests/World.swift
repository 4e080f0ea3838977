import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import StorePort
import TestKit
import Testing

/// People with devices, and a server that does what the test says. All in memory, without threads.
final class World {
    /// A device of a person, with its machine.
    final class Device {
        let user: String
        private(set) var store = InMemoryStore(.single)
        let peers = PeerCache()
        private let seed: UInt64
        private let carrier: Carrier
        var machine: MessengerParticipants
        /// Calls that the machine has asked for and the test has not answered.
        var attempts: [Attempt] = []
        var events: [MessengerEvent] = []
        var replies: [UInt64: MessengerReply] = [:]
        private var nextTicket: UInt64 = 1
        var now: Timestamp

        init(_ user: String, seed: UInt64, now: Timestamp, carrier: Carrier = .app) throws {
            (self.user, self.seed, self.now, self.carrier) = (user, seed, now, carrier)
            machine = try Self.make(user, carrier, store, peers, seed, now)
            run([.authenticated(true)])
        }

        private static func make(
            _ user: String, _ carrier: Carrier, _ store: InMemoryStore, _ peers: PeerCache, _ seed: UInt64,
            _ now: Timestamp
        ) throws -> MessengerParticipants {
            var changes: [StoreChange] = []
            let machine = try MessengerParticipants(
                account: user, carrier: carrier, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)),
                store: store,
                peers: peers, now: now, random: SeededGenerator(seed: seed), &changes)
            _ = try store.commit([changes])
            return machine
        }

        /// Ends the process: memory is lost, the store stays.
        func restart() throws {
            attempts = []
            machine = try Self.make(user, carrier, store, peers, seed &+ UInt64(now.wall), now)
            run([.authenticated(true)])
        }

        /// Goes on from an earlier copy of its store.
        ///
        /// - Parameter isNoted: whether the machine is told of it.
        func restore(from copy: InMemoryStore, isNoted: Bool = true) throws {
            store = copy
            (attempts, events) = ([], [])
            machine = try Self.make(user, carrier, store, peers, seed &+ UInt64(now.wall), now)
            if isNoted { perform { .restored(ticket: $0) } }
            run([.authenticated(true), .tick])
        }

        var id: DeviceID { machine.own.id }

        /// Does jobs in one batch.
        func run(_ jobs: [MessengerJob]) {
            now.wall += 1
            now.monotonic += 1_000_000
            var pipeline = CommitPipeline(machine)
            pipeline.prepare(jobs, now: now)
            if let commit = pipeline.close(now: now) {
                let outcome = store.outcome(of: commit)
                _ = pipeline.ended(outcome, now: now)
            }
            for reply in pipeline.settle(now: now).replies {
                switch reply.reply {
                case .event(let event): events.append(event)
                case .attempt(let attempt): attempts.append(attempt)
                default: replies[reply.connection.value] = reply.reply
                }
            }
            machine = pipeline.participants
        }

        /// Does a job, and returns its reply.
        @discardableResult
        func perform(_ job: (UInt64) -> MessengerJob) -> MessengerReply? {
            nextTicket += 1
            run([job(nextTicket)])
            return replies[nextTicket]
        }

        @discardableResult
        func send(_ text: String, to user: String, _ fallback: SendJob.Fallback = .wait) -> ChatMessage? {
            var job = SendJob(to: user, text: text)
            job.fallback = fallback
            guard case .accepted(let message)? = perform({ .send(ticket: $0, job) }) else { return nil }
            return message
        }

        func history(with user: String) -> [ChatMessage] {
            guard
                case .history(let messages)? = perform({ .history(ticket: $0, .person(user), before: nil, limit: 200) })
            else { return [] }
            return messages
        }

        @discardableResult
        func send(_ text: String, in group: GroupID) -> ChatMessage? {
            guard case .accepted(let message)? = perform({ .send(ticket: $0, SendJob(in: .group(group), text: text)) })
            else { return nil }
            return message
        }

        func history(in group: GroupID) -> [ChatMessage] {
            guard
                case .history(let messages)? = perform({ .history(ticket: $0, .group(group), before: nil, limit: 200) })
            else { return [] }
            return messages
        }

        func texts(in group: GroupID) -> [String] { history(in: group).map(\.text) }

        /// The names of the members, as this device knows them; nil if it does not know the group.
        func members(of group: GroupID) -> [String]? {
            machine.groups.first { $0.id == group }?.content.members.map(\.account.name)
        }

        func texts(with user: String) -> [String] { history(with: user).map(\.text) }

        /// Takes the call that comes first.
        func nextCall() -> Attempt? { attempts.isEmpty ? nil : attempts.removeFirst() }

        func end(_ attempt: Attempt, _ end: AttemptEnd = .done) {
            run([.attempted(attempt.id, lease: attempt.lease, end, random: 0)])
        }
    }

    var devices: [Device] = []
    var configs: [String: [UInt8]] = [:]
    /// Requests of devices to be added, by account.
    var requests: [String: [UInt8]] = [:]
    var hasReceipts = true
    /// One-time prekeys of devices that nobody has taken.
    var oneTime: [DeviceID: [OneTimePreKey.Public]] = [:]
    /// What was published of groups, by the id of the blob.
    var blobs: [String: [UInt8]] = [:]
    private var seed: UInt64

    init(seed: UInt64 = 1) { self.seed = seed }

    /// A new person with one device.
    func person(_ name: String) throws -> Device {
        let device = try device(of: name)
        device.perform { .found(ticket: $0) }
        deliver()
        return device
    }

    /// One more device of a person, which asks to be added.
    func device(of name: String) throws -> Device {
        seed += 1
        let device = try Device(name, seed: seed, now: Timestamp(monotonic: 0, wall: 1_700_000_000_000))
        devices.append(device)
        if let config = configs[name] {
            device.perform { .join(ticket: $0, config) }
            deliver()
        }
        return device
    }

    /// Adds a device that has asked for it.
    func adopt(_ name: String, by master: Device) throws {
        let request = requests[name] ?? []
        master.perform { .adopt(ticket: $0, request) }
        deliver()
    }

    /// Makes all calls, and delivers what they bring, until nothing is left to do.
    func deliver() {
        while step() {}
    }

    /// Answers the keys that a device has asked for, or makes one call.
    func step() -> Bool {
        for device in devices {
            let wanted = device.events.compactMap { event -> String? in
                if case .keysWanted(let user) = event { user } else { nil }
            }
            device.events.removeAll { if case .keysWanted = $0 { true } else { false } }
            let known = Set(wanted).filter { configs[$0] != nil }.sorted()
            for user in known {
                let (config, oneTime) = (configs[user], takeOneTime(of: user))
                device.perform { .keys(ticket: $0, config, of: user, oneTime: oneTime) }
            }
            if !known.isEmpty { return true }
            let lost = device.events.compactMap { event -> (user: String, device: DeviceID)? in
                if case .sessionLost(let user, let device) = event { (user, device) } else { nil }
            }
            device.events.removeAll { if case .sessionLost = $0 { true } else { false } }
            for (user, lost) in lost {
                let (config, oneTime) = (configs[user], takeOneTime(of: user))
                device.perform { .keys(ticket: $0, config, of: user, NewSessions(renewing: lost), oneTime: oneTime) }
            }
            if !lost.isEmpty { return true }
            let groups = device.events.compactMap { event -> GroupReference? in
                if case .groupWanted(let reference) = event { reference } else { nil }
            }
            device.events.removeAll { if case .groupWanted = $0 { true } else { false } }
            if !groups.isEmpty {
                for reference in groups { read(reference, by: device) }
                return true
            }
            guard let attempt = device.nextCall() else { continue }
            device.end(attempt, make(attempt.call, by: device))
            return true
        }
        return false
    }

    /// Adds one-time prekeys of a device to those of the server.
    func replenish(_ device: Device) {
        let left = oneTime[device.id]?.count ?? 0
        guard case .oneTimeKeys(let keys)? = device.perform({ .replenish(ticket: $0, left: left) }) else { return }
        oneTime[device.id, default: []] += keys
    }

    private func takeOneTime(of user: String) -> [DeviceID: OneTimePreKey.Public] {
        var taken: [DeviceID: OneTimePreKey.Public] = [:]
        for device in devices where device.user == user && oneTime[device.id]?.isEmpty == false {
            taken[device.id] = oneTime[device.id]?.removeFirst()
        }
        return taken
    }

    /// Reads a version of a group for a device.
    func read(_ reference: GroupReference, by device: Device) {
        let bytes = blobs[reference.blob]
        let reply = device.perform { .readGroup(ticket: $0, reference, bytes, hasKeys: false) }
        guard case .keysNeeded(let users)? = reply else { return }
        for user in users {
            let config = configs[user]
            device.perform { .keys(ticket: $0, config, of: user, NewSessions(begins: false)) }
        }
        device.perform { .readGroup(ticket: $0, reference, bytes, hasKeys: true) }
    }

    /// Makes a group, or a new version of one, and publishes it.
    @discardableResult
    func change(_ change: GroupChange, of group: GroupID? = nil, by device: Device) -> GroupState? {
        guard case .proposal(let proposal)? = device.perform({ .proposeGroup(ticket: $0, change, of: group) }) else {
            return nil
        }
        let id = "blob-\(blobs.count)"
        blobs[id] = proposal.blob
        guard case .group(let state)? = device.perform({ .publishedGroup(ticket: $0, proposal, blob: id) }) else {
            return nil
        }
        return state
    }

    private func make(_ call: Attempt.Call, by sender: Device) -> AttemptEnd {
        switch call {
        case .send(let bytes, let user, let device, _): deliver(bytes, to: [(user, device)], from: sender.user)
        case .sendSeveral(let bytes, let recipients, _):
            deliver(bytes, to: recipients.map { ($0.user, $0.device) }, from: sender.user)
        case .plaintext(let text, let user, _):
            for device in devices where device.user == user {
                device.perform { .receivePlaintext(ticket: $0, text, from: sender.user) }
            }
        case .receipt(let message, let user, let isRead):
            guard hasReceipts else { return .unsupported }
            for device in devices where device.user == user {
                device.perform { .receipt(ticket: $0, message, from: sender.user, isRead: isRead) }
            }
        case .publish(let bytes): configs[sender.user] = bytes
        case .register(let bytes): requests[sender.user] = bytes
        }
        return .done
    }

    func deliver(_ bytes: [UInt8], to recipients: [(user: String, device: DeviceID)], from user: String) {
        for device in devices where recipients.contains(where: { $0.user == device.user && $0.device == device.id }) {
            guard case .received(.keysWanted)? = device.receive(bytes, from: user) else { continue }
            let config = configs[user]
            device.perform { .keys(ticket: $0, config, of: user, NewSessions(begins: false)) }
            device.receive(bytes, from: user, hasKeys: true)
        }
    }
}

extension World.Device {
    @discardableResult
    func receive(_ bytes: [UInt8], from user: String, hasKeys: Bool = false) -> MessengerReply? {
        perform { .receive(ticket: $0, bytes, from: user, hasKeys: hasKeys) }
    }

    /// Seals a body as it is, also one that no machine makes, for a device with a session.
    func seal(_ body: Body, _ id: UInt64, for device: World.Device) throws -> [UInt8] {
        let box = try #require(try machine.own.sessions(with: device.id, in: machine.vault))
        var shared: [SessionID] = []
        let envelope = try machine.own.seal(
            body.bytes(paddedTo: 2048), MessageID(id), for: [(device.id, box)], in: machine.vault, &shared)
        return envelope.bytes
    }

    /// The people whose keys are wanted.
    var keysWanted: [String] {
        events.compactMap { event in if case .keysWanted(let user) = event { user } else { nil } }
    }

    /// The events of people's keys.
    var peerEvents: [PeerEvent] {
        events.compactMap { event in if case .peer(let event) = event { event } else { nil } }
    }
}

/// Records an issue, for the end of a test.
func fail(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) {
    Issue.record("\(text)", sourceLocation: sourceLocation)
}
