import NIOCore

/// What is said in a room, and who has had it. A message is done when the last member has had it; then its speaker says
/// the next. Belongs to one event loop.
final class RoomTalk {
    private struct Message {
        var number = UInt64.max
        var speaker = 0
        var sentAt: UInt64 = 0
        /// Members who have not had it.
        var missing = 0
    }

    /// A power of two above the number of messages in flight.
    private static let slots = 8192

    let name: String
    /// Messages that have been said and are not with all members.
    private(set) var inFlight = 0
    /// Messages that all members have had.
    private(set) var finished = 0
    /// Messages that single members have had, while it was measured.
    private(set) var deliveries = 0
    private var speakers: [LoadConnection] = []
    private var listeners = 0
    private var next: UInt64 = 0
    private var messages = [Message](repeating: Message(), count: slots)

    init(_ name: String) {
        self.name = name
    }

    /// Lets some members speak, each with so many messages in flight.
    func begin(speakers: [LoadConnection], window: Int, members: Int, _ now: UInt64) {
        precondition(speakers.count * window < Self.slots)
        self.speakers = speakers
        self.listeners = members - 1
        for _ in 0..<window {
            for speaker in speakers.indices { self.sendMessage(speaker, now) }
        }
    }

    /// Counts deliveries from zero.
    func beginMeasuring() {
        self.deliveries = 0
    }

    private func sendMessage(_ speaker: Int, _ now: UInt64) {
        let number = self.next
        self.next += 1
        self.inFlight += 1
        self.messages[Int(number) & (Self.slots - 1)] = Message(
            number: number, speaker: speaker, sentAt: now, missing: self.listeners)
        self.speakers[speaker].sendMessage(number, to: self.name)
    }

    /// A member has had a message.
    func arrived(_ number: UInt64, at member: LoadConnection, _ now: UInt64, _ record: LoadRecord) {
        let slot = Int(number) & (Self.slots - 1)
        let speaker = self.messages[slot].speaker
        guard self.messages[slot].number == number, self.messages[slot].missing > 0 else {
            return record.fault("\(member.nick) was shown message \(number), which all have had")
        }
        if let last = member.received.updateValue(number, forKey: speaker), last >= number {
            record.disordered += 1
        }
        if record.isMeasuring { self.deliveries += 1 }
        self.messages[slot].missing -= 1
        guard self.messages[slot].missing == 0 else { return }
        self.inFlight -= 1
        self.finished += 1
        record.arrival(now &- self.messages[slot].sentAt)
        if !record.isStopping { self.sendMessage(speaker, now) }
    }
}

extension LoadClient {
    /// What is said in the room, and for how long it is measured.
    struct RoomPlan {
        /// How many members speak.
        var speakers: Int
        /// Messages in flight per speaker.
        var window: Int
        var warmUp: TimeAmount
        var duration: TimeAmount
    }

    /// What was measured in a room.
    struct RoomFigures {
        /// Messages that reached all members, a second.
        var messagesPerSecond: Double
        /// Messages that reached one member, a second.
        var deliveriesPerSecond: Double
        var deliveries: Int
        /// From saying a message until the last member has it.
        var medianLatency: Double
        var tailLatency: Double
        /// What went wrong, in words; empty where nothing did.
        var complaint: String
    }

    /// Lets members of the room talk; `interval` is called when the measured time begins and when it ends.
    func measure(_ plan: RoomPlan, interval: () throws -> Void) throws -> RoomFigures {
        try self.onLoop { record in
            guard let room = record.room else { return }
            // Speakers are spread over the members, and so over the threads of what is measured.
            let stride = max(1, record.connections.count / plan.speakers)
            let speakers = (0..<plan.speakers).map { record.connections[$0 * stride] }
            room.begin(
                speakers: speakers, window: plan.window, members: record.connections.count,
                NIODeadline.now().uptimeNanoseconds)
            record.flush()
        }
        pause(plan.warmUp)
        try self.wait(Self.firstTextLimit) { $0.faults > 0 || ($0.room?.finished ?? 0) >= plan.speakers }
        try interval()
        let begin = NIODeadline.now()
        try self.onLoop { record in
            record.room?.beginMeasuring()
            record.beginMeasuring()
        }
        pause(plan.duration)
        let (latencies, deliveries) = try self.onLoop { record in
            record.endMeasuring()
            return (record.latencies, record.room?.deliveries ?? 0)
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        try interval()
        return RoomFigures(
            messagesPerSecond: Double(latencies.count) / elapsed,
            deliveriesPerSecond: Double(deliveries) / elapsed, deliveries: deliveries,
            medianLatency: latencies.microseconds(atShare: 0.5), tailLatency: latencies.microseconds(atShare: 0.99),
            complaint: try self.drainRoom())
    }

    private func drainRoom() throws -> String {
        try self.onLoop { $0.isStopping = true }
        try self.wait(Self.drainLimit) { $0.room?.inFlight == 0 }
        return try self.onLoop { record in
            var complaints: [String] = []
            let missing = record.room?.inFlight ?? 0
            if missing > 0 { complaints.append("\(missing) messages did not reach everybody") }
            if record.disordered > 0 { complaints.append("\(record.disordered) out of order") }
            if record.faults > 0 { complaints.append("\(record.faults) faults, the last: `\(record.lastFault)`") }
            return complaints.joined(separator: "; ")
        }
    }
}
