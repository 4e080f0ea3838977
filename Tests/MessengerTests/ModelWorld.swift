import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Foundation
import Protection
import StorePort
import TestKit

@testable import Messenger

/// A rule of the model that was broken.
struct ModelFailure: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) { self.description = description }
}

/// A device of a person, and what an app does between its machine and the server.
final class ModelDevice {
    let person: String
    let name: String
    private(set) var store = InMemoryStore(.single)
    private let seed: UInt64
    private var lives: UInt64 = 0
    var machine: MessengerParticipants
    /// By how much its clock is wrong, in milliseconds.
    let skew: Int64
    /// Its store is gone.
    var isLost = false

    // What ends with the process.
    var attempts: [Attempt] = []
    var answers: [(attempt: Attempt, end: AttemptEnd)] = []
    var wantedKeys: [String] = []
    /// Those that are read again after a pause.
    var postponedKeys: [String] = []
    var reads: [(user: String, keys: [UInt8]?)] = []
    var wantedGroups: [GroupReference] = []
    var proposals: [(proposal: GroupProposal, blob: String, change: GroupChange, base: GroupID?, tries: Int)] = []
    var leaves: [GroupID] = []
    /// Devices with which a new session is to be begun.
    var renewals: [(user: String, device: DeviceID)] = []
    /// The keys that were read for the first envelope of the mailbox.
    var opening: (mail: UInt64, keys: [UInt8]?)?

    // What the model knows of it.
    var latched: Set<AccountID> = []
    var versions: [String: Int] = [:]
    var shown: Set<MessageReference> = []
    var arrivals: [(chat: AccountID, reference: MessageReference)] = []
    var states: [MessageReference: DeliveryState] = [:]
    var taken: Set<[UInt8]> = []
    /// Own messages that wait for the keys of a person.
    var waiting: [(reference: MessageReference, chat: AccountID, person: String)] = []
    /// An earlier copy of its store, and what the model knew of it then.
    private(set) var copy: Copy?
    /// Messages that it has changed since the copy was made.
    var changed: Set<MessageReference> = []
    /// Messages that it may lack, because it went on from an earlier copy and had confirmed them for its person.
    var exempt: Set<MessageReference> = []
    /// Messages that it may have in an earlier form, because changes do not come again.
    var stale: Set<MessageReference> = []
    /// Whether others may still write to it in sessions that it does not have any more.
    var isSettling = false
    /// Whether it has ever gone on from an earlier copy.
    var wasRestored = false

    struct Copy {
        fileprivate var store: InMemoryStore
        fileprivate var latched: Set<AccountID>
        fileprivate var versions: [String: Int]
        fileprivate var shown: Set<MessageReference>
        fileprivate var states: [MessageReference: DeliveryState]
        var groups: [GroupState]
    }

    init(_ person: String, _ number: Int, seed: UInt64, skew: Int64, now: Timestamp) throws {
        (self.person, name, self.seed, self.skew) = (person, "\(person)\(number)", seed, skew)
        machine = try Self.make(person, store, seed, now)
    }

    private static func make(
        _ person: String, _ store: InMemoryStore, _ seed: UInt64, _ now: Timestamp
    ) throws -> MessengerParticipants {
        var changes: [StoreChange] = []
        let machine = try MessengerParticipants(
            account: person, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            peers: PeerCache(), now: now, random: SeededGenerator(seed: seed), &changes)
        _ = try store.commit([changes])
        return machine
    }

    /// Makes the machine again from the store.
    func makeAgain(_ now: Timestamp) throws {
        lives += 1
        let sendsSeveral = machine.sendsSeveral
        machine = try Self.make(person, store, seed &+ lives &* 1_000_003, now)
        machine.sendsSeveral = sendsSeveral
    }

    /// Makes a copy of the store, as a backup of the app's files does.
    func backUp() {
        changed = []
        copy = Copy(
            store: store.copy(), latched: latched, versions: versions, shown: shown, states: states,
            groups: machine.groups)
    }

    /// Goes back to the copy.
    func goBack(to copy: Copy, _ now: Timestamp) throws {
        store = copy.store.copy()
        (latched, versions, shown, states) = (copy.latched, copy.versions, copy.shown, copy.states)
        try makeAgain(now)
    }

    var id: DeviceID { machine.own.id }

    func list(of user: String) -> DeviceList? {
        user == person ? machine.own.deviceList : machine.own.peer(.services(user))?.deviceList
    }

    func waits(_ sequence: UInt64, for user: String) -> Bool {
        machine.memory.waiting[.services(user)]?.contains(sequence) == true
    }

    func message(_ reference: MessageReference) throws -> ChatMessage? { try machine.message(reference) }

    /// All messages that the store has, awaited ones included.
    func messages() throws -> [ChatMessage] {
        try store.records(.chatMessage).map { row in
            let (chat, sequence) = try MessengerParticipants.place(row.name)
            guard let message = try machine.message(chat, sequence) else { throw ModelFailure("a row is gone") }
            return message
        }
    }

    func want(_ user: String) { if !wantedKeys.contains(user) { wantedKeys.append(user) } }
    func want(_ group: GroupReference) { if !wantedGroups.contains(group) { wantedGroups.append(group) } }
}

extension DeviceList {
    fileprivate var removed: Set<DeviceID> {
        Set(versions.flatMap { $0.devices.map(\.id) }).subtracting(current.map(\.id))
    }
}

/// People with devices over a server with faults, all drawn from one seed; and the plain record of who wrote what, who
/// may read it and who has to.
final class ModelWorld {
    enum Conversation: Hashable {
        case people(Set<String>)
        case group(GroupID)
    }

    /// One text that was accepted: the first of a message, or that of an edit.
    private struct Text {
        var persons: Set<String>
        /// Devices that its writer knew to be removed.
        var removed: Set<DeviceID>
    }

    /// Devices that may miss a change of a message. Its writer seals it for the devices that it knows, and the master device
    /// hands over what it has by then, so nobody has a change for a device that was added while it was under way.
    private struct Gap {
        /// How many devices there were when the change was made; those that were added later may lack it.
        var devices = Int.max
        /// Devices that its writer did not know.
        var unknown: Set<DeviceID> = []
    }

    private struct Message {
        var author: ModelDevice
        var conversation: Conversation
        var texts: [String]
        var isDeleted = false
        var hasTimer: Bool
        var reactions: [String: (characters: String, device: ModelDevice, gap: Gap)] = [:]
        /// Devices that it was sealed for, as the writer knew them.
        var readers: Set<DeviceID> = []
        /// That of the last edit, or of the deletion.
        var gap = Gap()

        var form: Form {
            guard !isDeleted, !hasTimer else { return Form() }
            return Form(text: texts.last, reactions: reactions.mapValues(\.characters))
        }
    }

    /// What people see of a message.
    private struct Form: Equatable, CustomStringConvertible {
        /// Nil if it is deleted.
        var text: String?
        var reactions: [String: String] = [:]

        var description: String {
            text.map { "\($0) \(reactions.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" })" } ?? "deleted"
        }
    }

    private enum Item {
        case envelope([UInt8])
        case receipt(MessageID, isRead: Bool)
        case registration([UInt8])
    }

    private struct Mail {
        var number: UInt64
        var user: String
        var item: Item
    }

    private struct Account {
        var keys: [UInt8]
        var list: DeviceList
    }

    private enum Fate { case failed, unknown, killed }

    let people: [String]
    private(set) var devices: [ModelDevice] = []
    private let deviceLimit: Int
    private var random: SeededGenerator
    private var clock: Int64 = 0
    private var ticket: UInt64 = 1
    private var next: UInt64 = 0
    private var hasFaults = true
    private var isStarting = false
    /// Apart from the other one, so that worlds without these faults are what they were.
    private var chance: SeededGenerator
    private let reorders: Bool
    /// Whether devices go on from earlier copies of their stores, and whether the server answers with earlier states.
    private let (restores, isStale): (Bool, Bool)
    /// Steps until a restored device has new sessions with all others; nil if none is restored.
    private var settlesIn: Int?
    /// Groups of which a restored device had another version: there may be two branches.
    private var divided: Set<GroupID> = []
    private let hasReceipts: Bool

    // The server.
    private var accounts: [String: Account] = [:]
    /// The keys that accounts have published before.
    private var earlierKeys: [String: [[UInt8]]] = [:]
    private var mailboxes: [DeviceID: [Mail]] = [:]
    private var blobs: [String: [UInt8]] = [:]
    /// The highest request of a device for another one.
    private var lastRequest: [[DeviceID]: UInt64] = [:]
    /// The bytes under each sealed header of a session: a header has the step of the ratchet.
    private var steps: [[UInt8]: [UInt8]] = [:]
    private var seen: Set<[UInt8]> = []

    // The model.
    private var texts: [String: Text] = [:]
    private var messages: [MessageReference: Message] = [:]
    private var order: [MessageReference] = []
    private var groups: [GroupID: (owner: String, chains: [GroupChain])] = [:]
    private var groupOrder: [GroupID] = []
    /// What the master device had when it added a device.
    private var handedOver: [DeviceID: [MessageReference: Form]] = [:]
    private var wanted: [String] = []
    private(set) var trace: [String] = []

    static let canary = Data("canary".utf8)

    init(seed: UInt64, people: Int, devices: Int) throws {
        self.people = Array(["alice", "bob", "carol", "dave", "erin"].prefix(people))
        deviceLimit = devices
        random = SeededGenerator(seed: seed)
        chance = SeededGenerator(seed: seed &+ 1 << 32)
        (restores, isStale) = (seed.isMultiple(of: 3), seed % 3 == 1)
        (reorders, hasReceipts) = (seed.isMultiple(of: 2), !seed.isMultiple(of: 5))
        for person in self.people { try addDevice(of: person) }
    }

    // MARK: Chance

    private func draws(_ percent: Int) -> Bool { hasFaults && random.below(100) < percent }

    private func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[random.below(elements.count)]
    }

    /// Like ``draws(_:)``, for faults that not all worlds have.
    private func happens(_ percent: Int) -> Bool { hasFaults && chance.below(100) < percent }

    private func note(_ text: @autoclosure () -> String) {
        trace.append(text())
        if trace.count > 400 { trace.removeFirst(200) }
    }

    private func now(_ device: ModelDevice) -> Timestamp { now(device.skew) }

    private func now(_ skew: Int64) -> Timestamp {
        clock += 1
        return Timestamp(monotonic: clock * 1_000_000, wall: 1_700_000_000_000 + clock + skew)
    }

    // MARK: Devices

    private var alive: [ModelDevice] { devices.filter { !$0.isLost } }

    private func isListed(_ device: ModelDevice) -> Bool {
        !device.isLost && accounts[device.person]?.list.identity(of: device.id) != nil
    }

    /// Devices whose person uses them.
    private var used: [ModelDevice] {
        alive.filter { device in
            guard device.machine.isAdopted, let list = accounts[device.person]?.list else { return false }
            return list.identity(of: device.id) != nil
        }
    }

    private func master(of person: String) -> ModelDevice? { devices.first { $0.person == person } }

    private func addDevice(of person: String) throws {
        let number = devices.count { $0.person == person } + 1
        let skew = Int64(random.below(2000)) - 1000
        let device = try ModelDevice(person, number, seed: random.next(), skew: skew, now: now(skew))
        devices.append(device)
        note("\(device.name) is new")
        try start(device)
    }

    /// Begins a process, as an app does.
    private func start(_ device: ModelDevice) throws {
        isStarting = true
        defer { isStarting = false }
        try run(device, [.sendsSeveral(random.below(2) == 0), .authenticated(true)])
        if device.machine.isRegistered {
            try run(device, [.found(ticket: newTicket())])
            device.want(device.person)
        } else if let account = accounts[device.person] {
            try run(device, [.join(ticket: newTicket(), account.keys)])
            device.want(device.person)
        } else {
            try run(device, [.found(ticket: newTicket())])
        }
        askAgain(device)
    }

    /// Reads what a machine that was made from its store waits for.
    private func askAgain(_ device: ModelDevice) {
        for user in device.machine.waitingUsers { device.want(user) }
        for reference in device.machine.wantedGroups { device.want(reference) }
    }

    private func restart(_ device: ModelDevice, from copy: ModelDevice.Copy? = nil) throws {
        note("\(device.name) \(copy == nil ? "restarts" : "goes back to an earlier copy")")
        (device.attempts, device.answers, device.wantedKeys, device.reads) = ([], [], [], [])
        (device.postponedKeys, device.wantedGroups, device.proposals, device.opening) = ([], [], [], nil)
        device.renewals = []
        if let copy {
            try device.goBack(to: copy, now(device))
            isStarting = true
            try run(device, [.restored(ticket: newTicket())])
        } else {
            try device.makeAgain(now(device))
        }
        try check(device)
        try start(device)
    }

    /// Copies of stores are made and put back.
    private func restoreSome() throws {
        guard restores else { return }
        if let left = settlesIn {
            settlesIn = left - 1
            guard left == 0 else { return }
            settlesIn = nil
            try settleRestored()
        }
        let used = used
        guard !used.isEmpty else { return }
        if happens(30) { used[chance.below(used.count)].backUp() }
        let device = used[chance.below(used.count)]
        if settlesIn == nil, happens(15), let copy = device.copy { try restore(device, copy) }
    }

    /// A device goes on from an earlier copy of its store.
    private func restore(_ device: ModelDevice, _ copy: ModelDevice.Copy) throws {
        device.wasRestored = true
        // A commit with an unknown outcome may have stored what was not shown.
        let stored = try device.messages().filter { !$0.isAwaited }.map(\.reference)
        let shown = device.shown.union(stored)
        let before = Dictionary(uniqueKeysWithValues: copy.groups.map { ($0.id, $0.chain) })
        divided.formUnion(device.machine.groups.filter { before[$0.id] != $0.chain }.map(\.id))
        try restart(device, from: copy)
        // What it has written since is where it has come, and it cannot know what is there.
        try order.removeAll { reference in
            guard device.changed.contains(reference) == false else { return true }
            return try messages[reference]?.author === device && device.message(reference) == nil
        }
        device.stale.formUnion(order)
        for reference in order where mayLack(reference, device, shownBefore: shown) { device.exempt.insert(reference) }
        // What the master device was to hand over, it may have lost.
        for other in devices where other.person == device.person {
            let others = order.filter { messages[$0]?.readers.contains(other.id) != true }
            other.exempt.formUnion(others)
        }
        device.changed = []
        device.isSettling = true
        settlesIn = 3
    }

    /// Whether a text does not come again to a restored device: its person's only device had confirmed it, or it was not
    /// sealed for the device.
    private func mayLack(
        _ reference: MessageReference, _ device: ModelDevice, shownBefore: Set<MessageReference>
    ) -> Bool {
        guard let message = messages[reference] else { return true }
        guard message.author.person != device.person else { return !message.readers.contains(device.id) }
        // It cannot ask a device that it did not know then, until that one writes again.
        guard device.machine.own.owner(of: message.author.id) != nil else { return true }
        let isAlone = message.author.list(of: device.person)?.versions.count ?? 1 == 1
        return !message.readers.contains(device.id) || isAlone && shownBefore.contains(reference)
    }

    /// Lets all devices begin new sessions with those that were restored.
    private func settleRestored() throws {
        hasFaults = false
        try rest()
        clock += 700_000
        for device in alive { try run(device, [.tick]) }
        try rest()
        hasFaults = true
        for device in devices { device.isSettling = false }
        note("restored devices have settled")
    }

    private func newTicket() -> UInt64 {
        ticket += 1
        return ticket
    }

    /// Does jobs in one batch, whose commit may fail, or may be the last thing that the process does.
    ///
    /// - Returns: the replies by ticket; none if the jobs have failed or the process has ended.
    @discardableResult
    private func run(_ device: ModelDevice, _ jobs: [MessengerJob]) throws -> [UInt64: MessengerReply] {
        wanted = []
        var fate: Fate?
        if !isStarting, draws(4) { fate = pick([.failed, .unknown, .killed]) }
        var pipeline = CommitPipeline(device.machine)
        let now = now(device)
        pipeline.prepare(jobs, now: now)
        var hasFailed = false
        if let commit = pipeline.close(now: now) {
            if fate == .failed { device.store.failNextCommit() }
            if fate == .unknown { device.store.loseNextOutcome() }
            let outcome = device.store.outcome(of: commit)
            if fate == .killed {
                try restart(device)
                return [:]
            }
            if case .done(let results) = outcome {
                hasFailed = results.contains { $0 != nil }
            } else {
                hasFailed = true
            }
            _ = pipeline.ended(outcome, now: now)
        }
        let result = pipeline.settle(now: now)
        device.machine = pipeline.participants
        hasFailed = hasFailed || !result.failures.isEmpty
        var replies: [UInt64: MessengerReply] = [:]
        for reply in result.replies {
            switch reply.reply {
            case .event(let event): try take(event, of: device)
            case .attempt(let attempt): if !hasFailed { device.attempts.append(attempt) }
            default: replies[reply.connection.value] = reply.reply
            }
        }
        if hasFailed {
            note("\(device.name): a commit has failed")
            replies = [:]
            try device.makeAgain(self.now(device))
            isStarting = true
            defer { isStarting = false }
            try run(device, [.authenticated(true)])
            askAgain(device)
        }
        try check(device)
        return replies
    }

    @discardableResult
    private func perform(_ device: ModelDevice, _ job: (UInt64) -> MessengerJob) throws -> MessengerReply? {
        let ticket = newTicket()
        return try run(device, [job(ticket)])[ticket]
    }

    // MARK: Rules after each step

    private func check(_ device: ModelDevice) throws {
        let latched = device.machine.memory.latched
        guard latched.isSuperset(of: device.latched) else { throw ModelFailure("a latch of \(device.name) has fallen") }
        device.latched = latched
        for person in people {
            let count = device.list(of: person)?.versions.count ?? 0
            let isJoining = person == device.person && !device.machine.isMaster
            guard isJoining || count >= device.versions[person] ?? 0 else {
                throw ModelFailure("\(device.name) has an earlier list of \(person)")
            }
            device.versions[person] = count
        }
        try resolve(device)
    }

    private func take(_ event: MessengerEvent, of device: ModelDevice) throws {
        switch event {
        case .message(let message):
            guard device.shown.insert(message.reference).inserted else {
                throw ModelFailure("\(device.name) shows \(message.text) again")
            }
            if message.reference.device != device.id { device.arrivals.append((message.chat, message.reference)) }
            try checkReader(device, message)
        case .changed(let message):
            guard message.state >= device.states[message.reference] ?? .waiting else {
                throw ModelFailure("\(device.name): the state of \(message.text) has gone back to \(message.state)")
            }
            device.states[message.reference] = message.state
            try checkReader(device, message)
        case .keysWanted(let user):
            device.want(user)
            wanted.append(user)
        case .groupWanted(let reference): device.want(reference)
        case .sessionLost(let user, let lost): device.renewals.append((user, lost))
        case .leaveAgain(let group): device.leaves.append(group)
        case .unreadable(let user, let reason):
            note("\(device.name) cannot read an envelope of \(user): \(reason)")
        case .groupRefused(_, let refusal):
            note("\(device.name) refuses a version: \(refusal)")
        default: break
        }
    }

    /// Nobody reads what was not written for them.
    private func checkReader(_ device: ModelDevice, _ message: ChatMessage) throws {
        guard message.protection == .device else {
            throw ModelFailure("\(device.name) shows \(message.text) unprotected")
        }
        guard let text = texts[message.text] else { return }
        guard text.persons.contains(device.person) else {
            throw ModelFailure("\(device.name) reads \(message.text), which is for \(text.persons.sorted())")
        }
        guard !text.removed.contains(device.id) else {
            throw ModelFailure("\(device.name) was removed and reads \(message.text)")
        }
    }

    // MARK: What people do

    private func write(by device: ModelDevice) throws {
        let chat: ChatName
        let known = device.machine.groups.filter { device.machine.isMember(of: $0) }
        if random.below(3) == 0, let group = pick(known) {
            chat = .group(group.id)
        } else {
            guard let other = pick(people.filter { $0 != device.person }) else { return }
            chat = .person(other)
        }
        next += 1
        let text = "canary \(next)"
        // Before the job, so that a text that is shown is always known; its writer knows no less afterwards.
        texts[text] = record(chat, by: device)
        var job = SendJob(in: chat, text: text)
        // A latch keeps it from going out unprotected.
        if device.latched.contains(chat.id) { job.fallback = .plaintext }
        let reply = try perform(device) { .send(ticket: $0, job) }
        var accepted: ChatMessage?
        if case .accepted(let message)? = reply { accepted = message }
        if reply == nil { accepted = try device.messages().last { $0.text == text } }
        guard let accepted else { return }
        note("\(device.name) writes \(text) to \(chat): \(accepted.state)")
        if accepted.isOwn { device.shown.insert(accepted.reference) }
        messages[accepted.reference] = Message(
            author: device, conversation: conversation(chat, device), texts: [text], hasTimer: accepted.timer != nil)
        order.append(accepted.reference)
        for other in devices where other.isSettling { other.stale.insert(accepted.reference) }
        for person in (texts[text]?.persons ?? []).sorted() {
            device.waiting.append((accepted.reference, chat.id, person))
        }
        try resolve(device)
    }

    private func conversation(_ chat: ChatName, _ device: ModelDevice) -> Conversation {
        switch chat {
        case .person(let other): .people([other, device.person])
        case .group(let group): .group(group)
        }
    }

    private func persons(_ chat: ChatName, _ device: ModelDevice) -> Set<String> {
        switch chat {
        case .person(let other): [other, device.person]
        case .group(let group):
            Set(device.machine.groups.first { $0.id == group }?.content.members.map(\.account.name) ?? [])
        }
    }

    private func record(_ chat: ChatName, by device: ModelDevice) -> Text {
        let persons = persons(chat, device)
        return Text(
            persons: persons,
            removed: persons.reduce(into: []) { $0.formUnion(device.list(of: $1)?.removed ?? []) })
    }

    /// Notes for whom own messages were sealed meanwhile.
    private func resolve(_ device: ModelDevice) throws {
        guard !device.waiting.isEmpty else { return }
        var rest: [(reference: MessageReference, chat: AccountID, person: String)] = []
        for waiting in device.waiting {
            // In a private chat both wait for the keys of the other.
            let person = waiting.chat.group == nil ? waiting.chat.name : waiting.person
            guard !device.waits(waiting.reference.message.value, for: person) else {
                rest.append(waiting)
                continue
            }
            guard let message = try device.message(waiting.reference), !message.isDeleted else { continue }
            if let group = waiting.chat.group {
                guard persons(.group(group), device).contains(waiting.person) else { continue }
            }
            let listed = device.list(of: waiting.person)?.current.map(\.id) ?? []
            messages[waiting.reference]?.readers.formUnion(listed)
        }
        device.waiting = rest
    }

    private enum Change { case edit, delete, react }

    private func change(by device: ModelDevice) throws {
        let kind = pick([Change.edit, .edit, .delete, .react, .react]) ?? .edit
        let candidates = order.filter { reference in
            guard let message = messages[reference], !message.isDeleted, !message.hasTimer else { return false }
            switch kind {
            case .edit: return message.author === device && (message.texts.count == 1 || !reorders)
            case .delete: return message.author === device
            case .react: return message.author !== device && message.reactions[device.person] == nil
            }
        }
        guard let reference = pick(candidates), let message = try device.message(reference), !message.isAwaited else {
            return
        }
        let chat = message.chat.group.map { ChatName.group($0) } ?? .person(message.chat.name)
        next += 1
        let text = kind == .edit ? "canary \(next)" : ""
        let characters = "canary \(next)"
        let act: ChatContent.Act =
            switch kind {
            case .edit: .edit(reference)
            case .delete: .delete(reference)
            case .react: .react(reference, with: characters)
            }
        if kind == .edit { texts[text] = record(chat, by: device) }
        let reply = try perform(device) { .send(ticket: $0, SendJob(in: chat, act, text: text)) }
        let after = try device.message(reference)
        let isDone =
            switch kind {
            case .edit: after?.text == text
            case .delete: after?.isDeleted == true
            case .react: after?.reactions.contains { $0.isOwn && $0.characters == characters } == true
            }
        if case .refused? = reply {
            guard !isDone else { throw ModelFailure("\(device.name): a refused change counts") }
            return
        }
        guard isDone else { return }
        note("\(device.name): \(act) \(text)")
        device.changed.insert(reference)
        for other in devices where other.isSettling { other.stale.insert(reference) }
        // What waits for keys is sealed as it is then.
        let isSealed = message.state != .waiting || !message.isOwn
        let gap = isSealed ? gap(isCommitted: reply != nil) : Gap()
        switch kind {
        case .edit: messages[reference]?.texts.append(text)
        case .delete: messages[reference]?.isDeleted = true
        case .react: messages[reference]?.reactions[device.person] = (characters, device, gap)
        }
        if kind != .react, isSealed { messages[reference]?.gap = gap }

        /// Which devices a change that was made just now may miss.
        func gap(isCommitted: Bool) -> Gap {
            var gap = Gap(devices: devices.count)
            for person in people {
                let known = wanted.contains(person) ? [] : device.list(of: person)?.current.map(\.id) ?? []
                let unknown = devices.filter { $0.person == person && !known.contains($0.id) }.map(\.id)
                gap.unknown.formUnion(unknown)
            }
            if !isCommitted { gap.unknown.formUnion(devices.map(\.id)) }
            return gap
        }
    }

    private func changeGroup(by device: ModelDevice) throws {
        let known = device.machine.groups.filter { device.machine.isMember(of: $0) }
        guard let group = pick(known), groups.count >= 2 || random.below(2) == 0 else {
            let others = people.filter { $0 != device.person && random.below(3) > 0 }
            return try propose(.create(name: "canary", metadata: [], members: others), nil, device)
        }
        let others = people.filter { $0 != device.person }
        guard let other = pick(others) else { return }
        next += 1
        let change = pick([
            GroupChange.rename("canary \(next)"), .add([other]), .remove([other]), .moderator(other, true),
        ])
        try propose(change ?? .rename(""), group.id, device)
    }

    private func propose(
        _ change: GroupChange, _ base: GroupID?, _ device: ModelDevice, tries: Int = 5
    ) throws {
        guard case .proposal(let proposal)? = try perform(device, { .proposeGroup(ticket: $0, change, of: base) })
        else {
            return
        }
        guard !draws(10) else { return }
        next += 1
        let blob = "blob \(next)"
        try look(at: proposal.blob)
        blobs[blob] = proposal.blob
        let id = proposal.chain.id
        if groups[id] == nil {
            groups[id] = (device.person, [])
            groupOrder.append(id)
        }
        groups[id]?.chains.append(proposal.chain)
        note("\(device.name) proposes \(change) of \(base?.text.prefix(4) ?? "none") as \(blob)")
        device.proposals.append((proposal, blob, change, base, tries))
    }

    private func finishProposal(_ device: ModelDevice) throws {
        let (proposal, blob, change, base, tries) = device.proposals.removeFirst()
        let reply = try perform(device) { .publishedGroup(ticket: $0, proposal, blob: blob) }
        if case .refused(.groupChanged)? = reply, tries > 1 { try propose(change, base, device, tries: tries - 1) }
    }

    /// One thing that a person does.
    func act() throws {
        clock += Int64(random.below(1000))
        try restoreSome()
        guard let device = pick(used) else { return }
        switch random.below(20) {
        case 0..<9: try write(by: device)
        case 9..<13: try change(by: device)
        case 13: try perform(device) { .markRead(ticket: $0, .person(pick(people) ?? "")) }
        case 14:
            guard let other = pick(people.filter { $0 != device.person }) else { return }
            let seconds: Int64? = random.below(2) == 0 ? nil : 600
            try perform(device) { .setTimer(ticket: $0, .person(other), seconds) }
        case 15, 16: try changeGroup(by: device)
        case 17: try restart(device)
        case 18:
            let count = devices.count { $0.person == device.person && !$0.isLost && isListed($0) }
            let all = devices.count { $0.person == device.person }
            if count < deviceLimit, all < deviceLimit + 2 { try addDevice(of: device.person) }
        default: try revoke(of: device.person)
        }
    }

    /// A person loses a device, or somebody takes it.
    private func revoke(of person: String) throws {
        guard let master = master(of: person), deviceLimit > 1 else { return }
        let others = master.machine.own.deviceList.current.filter { $0.id != master.id }
        guard let lost = pick(others), let device = devices.first(where: { $0.id == lost.id }) else { return }
        if random.below(2) == 0 {
            device.isLost = true
            note("\(device.name) is lost")
        }
        try perform(master) { .revoke(ticket: $0, lost.id) }
        note("\(device.name) is revoked")
    }

    // MARK: The server

    private func look(at bytes: [UInt8]) throws {
        guard Data(bytes).range(of: Self.canary) == nil else { throw ModelFailure("the server reads a text") }
    }

    /// The part of a ratchet message that its step decides.
    private static func step(of message: [UInt8]) -> [UInt8] {
        let preKeys = message[0] & 1 == 0 ? 0 : message[0] & 2 == 0 ? 1640 : 1644
        let start = 1 + preKeys
        return Array(message[(start + 2)..<(start + 2 + Int(message[start]) + 16)])
    }

    private func checkSteps(_ envelope: Envelope) throws {
        var messages = [envelope.ratchetMessage]
        if envelope.kind == .several {
            messages = try MultiRecipientMessage(serialized: envelope.ratchetMessage.span).keys.map(\.message)
        }
        for message in messages {
            guard steps.updateValue(message, forKey: Self.step(of: message)) ?? message == message else {
                throw ModelFailure("a step of a ratchet was used twice")
            }
        }
    }

    /// Makes a call. What fails may have had its effect.
    private func make(_ attempt: Attempt, by device: ModelDevice) throws -> AttemptEnd {
        if let expires = attempt.expires, expires < now(device).wall { return .refused("late") }
        if draws(10) { return .failed }
        let end = try call(attempt, by: device)
        if case .refused = end, case .publish = attempt.call { device.want(device.person) }
        return draws(10) ? .failed : end
    }

    private func call(_ attempt: Attempt, by device: ModelDevice) throws -> AttemptEnd {
        switch attempt.call {
        case .plaintext(let text, let user, _):
            throw ModelFailure("\(device.name) sends \(text) to \(user) unprotected")
        case .publish(let bytes):
            try look(at: bytes)
            guard accounts[device.person]?.keys != bytes else { return .done }
            let list = try PublishedKeys(bytes).deviceList
            guard accounts[device.person].map({ list.continues($0.list) }) ?? true else { return .refused("conflict") }
            note("\(device.name) publishes \(list.versions.count): \(list.current.map { $0.id.name.suffix(4) })")
            if let keys = accounts[device.person]?.keys { earlierKeys[device.person, default: []].append(keys) }
            accounts[device.person] = Account(keys: bytes, list: list)
            return .done
        case .register(let bytes):
            guard let master = accounts[device.person]?.list.master else { return .unknownRecipient }
            put(.registration(bytes), for: master, from: device.person)
            return .done
        case .receipt(let message, let user, let isRead):
            guard hasReceipts else { return .unsupported }
            guard isListed(device) else { return .refused("not listed") }
            for listed in accounts[user]?.list.current ?? [] {
                put(.receipt(message, isRead: isRead), for: listed.id, from: device.person)
            }
            return .done
        case .send(let bytes, let user, let recipient, _):
            return try send(bytes, to: [Attempt.Recipient(user: user, device: recipient)], attempt, by: device)
        case .sendSeveral(let bytes, let recipients, _):
            return try send(bytes, to: recipients, attempt, by: device)
        }
    }

    private func send(
        _ bytes: [UInt8], to recipients: [Attempt.Recipient], _ attempt: Attempt, by device: ModelDevice
    ) throws -> AttemptEnd {
        let envelope = try Envelope(bytes, in: .app)
        if seen.insert(bytes).inserted {
            try look(at: bytes)
            try checkSteps(envelope)
        }
        guard isListed(device) else { return .refused("not listed") }
        // Whoever has taken a device of the past gets what is sent for it, whatever the list says.
        let unlisted = recipients.filter { accounts[$0.user]?.list.identity(of: $0.device) == nil }
        for recipient in unlisted where accounts[recipient.user]?.list.removed.contains(recipient.device) == true {
            put(.envelope(bytes), for: recipient.device, from: device.person)
        }
        guard unlisted.isEmpty else { return waits(for: unlisted, by: device) ? .failed : .unknownRecipient }
        for recipient in recipients {
            put(.envelope(bytes), for: recipient.device, from: device.person)
        }
        return .done
    }

    /// Whether an envelope goes to a device of a list that its account has not published yet.
    private func waits(for recipients: [Attempt.Recipient], by device: ModelDevice) -> Bool {
        for user in Set(recipients.map(\.user)).sorted() {
            guard let list = device.list(of: user),
                recipients.contains(where: { $0.user == user && list.identity(of: $0.device) != nil })
            else { continue }
            if user == device.person { return true }
            if let published = accounts[user]?.list, list.continues(published) { return true }
        }
        return false
    }

    private func put(_ item: Item, for device: DeviceID, from user: String) {
        next += 1
        mailboxes[device, default: []].append(Mail(number: next, user: user, item: item))
    }

    // MARK: What apps do

    private func deliver(to device: ModelDevice) throws {
        if let opening = device.opening { return try open(opening, device) }
        guard let mailbox = mailboxes[device.id], let first = mailbox.first else { return }
        let mail = reorders && mailbox.count > 1 && draws(20) ? mailbox[1] : first
        switch mail.item {
        case .envelope(let bytes):
            let isFirst = device.taken.insert(bytes).inserted
            let reply = try perform(device) { .receive(ticket: $0, bytes, from: mail.user, hasKeys: false) }
            guard case .received(.keysWanted)? = reply else {
                return try noteReceived(reply, mail, bytes, device, isFirst: isFirst)
            }
            // The read of keys may fail, and it may end when other keys were published.
            guard !draws(10) else { return }
            device.opening = (mail.number, keys(of: mail.user))
        case .receipt(let message, let isRead):
            let reply = try perform(device) { .receipt(ticket: $0, message, from: mail.user, isRead: isRead) }
            if reply != nil { remove(mail, of: device) }
        case .registration(let bytes):
            // Nobody adds a device again that they have removed.
            let id = try DeviceRequest(bytes).keys.id
            guard device.machine.isMaster, !device.machine.own.deviceList.removed.contains(id) else {
                return remove(mail, of: device)
            }
            let reply = try perform(device) { .adopt(ticket: $0, bytes) }
            // A restored device reads its account first.
            if case .refused(.keysMissing)? = reply { return }
            try noteAdopted(id, by: device)
            if reply != nil { remove(mail, of: device) }
        }
    }

    private func open(_ opening: (mail: UInt64, keys: [UInt8]?), _ device: ModelDevice) throws {
        device.opening = nil
        guard let mail = mailboxes[device.id]?.first(where: { $0.number == opening.mail }),
            case .envelope(let bytes) = mail.item,
            try perform(device, { .keys(ticket: $0, opening.keys, of: mail.user, NewSessions(begins: false)) }) != nil
        else { return }
        let reply = try perform(device) { .receive(ticket: $0, bytes, from: mail.user, hasKeys: true) }
        try noteReceived(reply, mail, bytes, device, isFirst: false)
    }

    private func noteReceived(
        _ reply: MessengerReply?, _ mail: Mail, _ bytes: [UInt8], _ device: ModelDevice, isFirst: Bool
    ) throws {
        guard case .received(let outcome)? = reply else { return }
        let envelope = try Envelope(bytes, in: .app)
        let reference = MessageReference(device: envelope.sender, message: envelope.messageID)
        switch outcome {
        case .copy:
            guard try !isFirst || device.message(reference) != nil else {
                throw ModelFailure("\(device.name) takes a new envelope of \(mail.user) for a copy")
            }
        case .dropped, .taken, .keysWanted: break
        }
        if !draws(10) { remove(mail, of: device) }
    }

    private func remove(_ mail: Mail, of device: ModelDevice) {
        mailboxes[device.id]?.removeAll { $0.number == mail.number }
        // A server that has forgotten the acknowledgement.
        if isStale, happens(5), case .envelope = mail.item { put(mail.item, for: device.id, from: mail.user) }
    }

    /// The keys that an account has published, or earlier ones.
    private func keys(of user: String) -> [UInt8]? {
        guard isStale, happens(25), let earlier = earlierKeys[user] else { return accounts[user]?.keys }
        return earlier[chance.below(earlier.count)]
    }

    /// Notes what the master device has, so that a device that it has added has to get it.
    private func noteAdopted(_ id: DeviceID, by master: ModelDevice) throws {
        guard handedOver[id] == nil, master.machine.own.deviceList.identity(of: id) != nil else { return }
        note("\(master.name) adopts \(devices.first { $0.id == id }?.name ?? "")")
        var forms: [MessageReference: Form] = [:]
        for message in try master.messages() where !message.isAwaited {
            forms[message.reference] = form(of: message, on: master)
        }
        handedOver[id] = forms
    }

    private func form(of message: ChatMessage, on device: ModelDevice) -> Form {
        guard !message.isDeleted else { return Form() }
        let reactions = message.reactions.map { reaction in
            (reaction.isOwn ? device.person : (reaction.author ?? message.chat).name, reaction.characters)
        }
        return Form(text: message.text, reactions: Dictionary(reactions) { "\($0) \($1)" })
    }

    private func finishRead(_ device: ModelDevice) throws {
        let read = device.reads.removeFirst()
        let reply = try perform(device) { .keys(ticket: $0, read.keys, of: read.user) }
        // While messages wait for them, they are read again.
        if case .done? = reply { return }
        if device.machine.waitingUsers.contains(read.user) { device.postponedKeys.append(read.user) }
    }

    private func startRead(_ device: ModelDevice) {
        let started = device.wantedKeys.first { user in !device.reads.contains { $0.user == user } }
        guard let user = started, !draws(10) else { return }
        device.wantedKeys.removeAll { $0 == user }
        device.reads.append((user, keys(of: user)))
    }

    private func readGroup(_ device: ModelDevice) throws {
        guard !draws(10) else { return }
        let reference = device.wantedGroups[0]
        let bytes = blobs[reference.blob]
        var reply = try perform(device) { .readGroup(ticket: $0, reference, bytes, hasKeys: false) }
        if case .keysNeeded(let users)? = reply {
            for user in users {
                let keys = keys(of: user)
                _ = try perform(device) { .keys(ticket: $0, keys, of: user, NewSessions(begins: false)) }
            }
            reply = try perform(device) { .readGroup(ticket: $0, reference, bytes, hasKeys: true) }
        }
        guard reply != nil else { return }
        device.wantedGroups.removeAll { $0 == reference }
        if device.machine.wantedGroups.contains(reference) { device.want(reference) }
    }

    private func renew(_ device: ModelDevice) throws {
        let (user, lost) = device.renewals.removeFirst()
        let keys = keys(of: user)
        try perform(device) { .keys(ticket: $0, keys, of: user, NewSessions(renewing: lost)) }
    }

    private enum Move { case make, answer, mail, startRead, finishRead, group, proposal, leave, renew }

    private func moves(of device: ModelDevice) -> [Move] {
        var moves: [Move] = []
        if !device.attempts.isEmpty { moves += [.make, .make] }
        if !device.answers.isEmpty { moves.append(.answer) }
        if device.opening != nil || mailboxes[device.id]?.isEmpty == false { moves += [.mail, .mail] }
        if device.wantedKeys.contains(where: { user in !device.reads.contains { $0.user == user } }) {
            moves.append(.startRead)
        }
        if !device.reads.isEmpty { moves.append(.finishRead) }
        if !device.wantedGroups.isEmpty { moves.append(.group) }
        if !device.proposals.isEmpty { moves.append(.proposal) }
        if !device.leaves.isEmpty { moves.append(.leave) }
        if !device.renewals.isEmpty { moves.append(.renew) }
        return moves
    }

    /// One thing that an app or the server does by itself.
    func move(_ device: ModelDevice) throws -> Bool {
        guard let move = pick(moves(of: device)) else { return false }
        clock += Int64(random.below(10))
        switch move {
        case .make:
            let attempt = device.attempts.remove(at: random.below(device.attempts.count))
            let end = try make(attempt, by: device)
            if draws(30) { device.answers.append((attempt, end)) } else { try answer(attempt, end, device) }
        case .answer:
            let (attempt, end) = device.answers.removeFirst()
            try answer(attempt, end, device)
        case .mail: try deliver(to: device)
        case .startRead: startRead(device)
        case .finishRead: try finishRead(device)
        case .group: try readGroup(device)
        case .proposal: try finishProposal(device)
        case .renew: try renew(device)
        case .leave: try propose(.remove([device.person]), device.leaves.removeFirst(), device)
        }
        return true
    }

    private func answer(_ attempt: Attempt, _ end: AttemptEnd, _ device: ModelDevice) throws {
        try run(device, [.attempted(attempt.id, lease: attempt.lease, end, random: random.next())])
    }

    func moveSome() throws {
        for _ in 0..<random.below(16) {
            guard let device = pick(alive) else { return }
            _ = try move(device)
        }
        // The server shows an unprotected text in a chat that is protected.
        if draws(5), let device = pick(used), let chat = pick(device.latched.sorted()) {
            try perform(device) { .receivePlaintext(ticket: $0, "forged", from: chat.name) }
        }
        if draws(30) { try wake(alive) }
    }

    private func wake(_ devices: [ModelDevice]) throws {
        for device in devices {
            for user in device.postponedKeys { device.want(user) }
            device.postponedKeys = []
            let now = now(device)
            guard let at = device.machine.nextWake(now), at <= now.monotonic / 1_000_000 else { continue }
            try run(device, [.tick])
        }
    }

    // MARK: The end

    /// Ends the faults, and lets all come to rest.
    func settle() throws {
        hasFaults = false
        try rest()
        for id in groupOrder {
            // The owner's version decides between long branches.
            guard let owner = groups[id]?.owner, let master = master(of: owner),
                master.machine.groups.contains(where: { $0.id == id })
            else { continue }
            try propose(.rename("canary at the end"), id, master)
            try rest()
        }
        clock += 700_000
        for device in alive { try run(device, [.tick]) }
        try rest()
    }

    private func rest() throws {
        for _ in 0..<400 {
            var left = 10_000
            var isMoving = true
            while isMoving {
                isMoving = false
                for device in alive {
                    guard try move(device) else { continue }
                    isMoving = true
                    left -= 1
                    guard left > 0 else {
                        throw ModelFailure("there is no rest: \(moves(of: device)) of \(device.name)")
                    }
                }
            }
            // Time passes until the next thing is due.
            let wakes = used.compactMap { $0.machine.nextWake(now($0)) }
            let hasPostponed = alive.contains { !$0.postponedKeys.isEmpty }
            guard let next = hasPostponed ? clock + 1000 : wakes.min(), next < clock + 300_000 else { return }
            clock = max(clock, next)
            try wake(alive)
        }
        let late = used.filter { $0.machine.nextWake(now($0)) != nil }.map(\.name)
        throw ModelFailure("there is no end of attempts of \(late)")
    }

    /// All devices that are still listed have what they have to have, and agree.
    func checkEnd() throws {
        let listed = used
        for device in alive where accounts[device.person]?.list.identity(of: device.id) != nil {
            guard device.machine.isAdopted else {
                throw ModelFailure("\(device.name) does not know that it was adopted")
            }
            guard device.machine.own.deviceList == accounts[device.person]?.list else {
                throw ModelFailure("\(device.name) has not the list of its account")
            }
            guard !device.machine.awaitsHistory else { throw ModelFailure("\(device.name) waits for history") }
            guard device.machine.memory.waiting.isEmpty else {
                throw ModelFailure("texts of \(device.name) wait for \(device.machine.waitingUsers)")
            }
            guard device.machine.memory.held.isEmpty, device.machine.memory.open.isEmpty else {
                throw ModelFailure("messages of \(device.name) are held or open")
            }
        }
        var unstable: [GroupID: Set<String>] = [:]
        for id in groupOrder { unstable[id] = divided.contains(id) ? Set(people) : try checkGroup(id, listed) }
        for device in alive { try check(device, unstable) }
        for device in listed { try checkOrder(device) }
    }

    /// - Returns: people whose membership was not the same on all ways.
    private func checkGroup(_ id: GroupID, _ listed: [ModelDevice]) throws -> Set<String> {
        guard let (owner, chains) = groups[id], let master = master(of: owner),
            let last = master.machine.groups.first(where: { $0.id == id })
        else { return Set(people) }
        let members = Set(last.content.members.map(\.account.name))
        for device in listed where members.contains(device.person) {
            // The owner writes to the devices that it knows.
            guard master.list(of: device.person)?.identity(of: device.id) != nil else { continue }
            guard let group = device.machine.groups.first(where: { $0.id == id }) else {
                throw ModelFailure("\(device.name) does not know group \(id.text.prefix(4))")
            }
            guard group.chain == last.chain else {
                throw ModelFailure(
                    "\(device.name) has \(group.content.name) of \(id.text.prefix(4)), and \(master.name) \(last.content.name)"
                )
            }
        }
        var unstable = Set(people).subtracting(members)
        for chain in chains {
            let now = Set(chain.content.members.map(\.account.name))
            guard chain.versions.count > 1 else { continue }
            let before = Set(chain.versions[chain.versions.count - 2].content.members.map(\.account.name))
            unstable.formUnion(before.subtracting(now))
            // A device that knew of a removal has refused the version, and perhaps texts of those whom it adds.
            let isWhole = chain.versions.allSatisfy { version in
                accounts[version.signer.name]?.list.identity(of: version.device) != nil
            }
            if !isWhole || !last.chain.has(chain.last.digest) { unstable.formUnion(now.subtracting(before)) }
        }
        return unstable
    }

    private func check(_ device: ModelDevice, _ unstable: [GroupID: Set<String>]) throws {
        var found: [MessageReference: ChatMessage] = [:]
        for message in try device.messages() {
            guard found.updateValue(message, forKey: message.reference) == nil else {
                throw ModelFailure("\(device.name) has \(message.text) twice")
            }
            try checkReader(device, message)
        }
        guard isListed(device) else { return }
        for reference in order {
            guard let model = messages[reference], !device.exempt.contains(reference) else { continue }
            let first = model.texts[0]
            var people: Set<String> = []
            if case .group(let id) = model.conversation {
                people = unstable[id] ?? []
                guard !people.contains(model.author.person), !people.contains(device.person) else { continue }
            }
            let before = handedOver[device.id]?[reference]
            let isReader = isListed(model.author) && model.readers.contains(device.id)
            let message = found[reference]
            let isHere = message.map { !$0.isAwaited } ?? false
            // A deleted text does not come again.
            let mayLack = model.hasTimer || model.isDeleted && device.stale.contains(reference)
            guard isHere || mayLack || !(isReader || before != nil) else {
                let why = isReader ? "was sealed for it" : "was handed over"
                throw ModelFailure("\(device.name) has not \(first) of \(model.author.name), which \(why)")
            }
            guard let message, isHere else { continue }
            // What a device has sent just before it was removed may be lost.
            people.formUnion(model.reactions.filter { !isListed($0.value.device) }.keys)
            if isListed(model.author), !device.stale.contains(reference) {
                try compare(form(of: message, on: device), with: model, before: before, without: people, on: device)
            }
            guard device === model.author else { continue }
            guard message.state >= .sent, message.state < .failed else {
                throw ModelFailure("\(first) of \(device.name) is \(message.state)")
            }
            // A receipt comes again only with its text.
            if !device.stale.contains(reference) { try checkReceipt(message, model) }
        }
    }

    /// A device sees a message as it is, except for changes that it may miss.
    ///
    /// - Parameters:
    ///   - before: what was handed over to the device; nil if nothing was.
    ///   - people: those whose reactions do not count.
    private func compare(
        _ form: Form, with model: Message, before: Form?, without people: Set<String>, on device: ModelDevice
    ) throws {
        var (form, expected) = (form, model.form)
        if mayMiss(model.gap, device), before.map({ $0.text != expected.text }) ?? true {
            // Without a deletion it has the reactions, too.
            guard expected.text != nil else { return }
            if let text = form.text, model.texts.contains(text) { expected.text = text }
        }
        for (person, reaction) in model.reactions
        where mayMiss(reaction.gap, device) && before?.reactions[person] != reaction.characters {
            form.reactions[person] = nil
            expected.reactions[person] = nil
        }
        for person in people {
            form.reactions[person] = nil
            expected.reactions[person] = nil
        }
        guard form == expected else {
            throw ModelFailure("\(device.name) has \(form) in place of \(expected), first \(model.texts[0])")
        }
    }

    private func mayMiss(_ gap: Gap, _ device: ModelDevice) -> Bool {
        gap.unknown.contains(device.id) || !devices.prefix(gap.devices).contains { $0 === device }
    }

    /// What a device of the recipient has taken is confirmed.
    private func checkReceipt(_ message: ChatMessage, _ model: Message) throws {
        guard hasReceipts, case .people = model.conversation, message.state == .sent else { return }
        for device in used where device.person != model.author.person {
            guard try device.message(message.reference)?.isAwaited == false,
                handedOver[device.id]?[message.reference] == nil, device.shown.contains(message.reference)
            else { continue }
            throw ModelFailure("\(model.author.name) does not know that \(device.name) has \(model.texts[0])")
        }
    }

    /// Texts of a device come in the order in which they were written.
    private func checkOrder(_ device: ModelDevice) throws {
        guard !reorders, !device.wasRestored else { return }
        var last: [AccountID: [DeviceID: MessageReference]] = [:]
        let restored = Set(devices.filter(\.wasRestored).map(\.id))
        for (chat, reference) in device.arrivals where chat.group == nil && !restored.contains(reference.device) {
            if let before = last[chat]?[reference.device], before.message.value > reference.message.value {
                let texts = [before, reference].map { messages[$0]?.texts[0] ?? "" }
                throw ModelFailure("\(device.name) has \(texts[0]) before \(texts[1])")
            }
            last[chat, default: [:]][reference.device] = reference
        }
    }
}
