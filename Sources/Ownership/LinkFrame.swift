// The frames of a link between two gateways, over a connection that hides and authenticates them: jobs and replies carry
// texts. Numbers are big-endian.
//
//     frame         length u32 | kind u8 | body        length: of all that follows it
//     1 hello       version u16 | gateway u64          the first frame of each side, and only that
//     2 jobs        count u16 | count x (token 16 bytes | shard u8 | epoch u64 | size u32 | job)
//     3 replies     count u16 | count x (token 16 bytes | shard u8 | epoch u64 | outcome u8, and if it is 1: size u32 | reply)
//     4 rise        number u64 | size u32 | rise
//     5 acknowledged number u64
//     6 ping, 7 pong number u64
//
// Outcomes: 1 done, 2 failed, 3 not mine. Each frame has one form. What does not fit ends the link: nothing is skipped, since
// both sides have said which version they speak. What jobs, replies and rises hold is not known here.

import StorePort

/// The bounds of a link. All are ours.
package enum LinkLimits {
    /// Bytes of a frame without its length. A queue of this size is what a link may hold for a gateway that reads slowly.
    package static let frameBytes = 4 << 20
    /// Jobs or replies of one frame, as many as one commit has.
    package static let batch = OwnershipLimits.batchJobs
    /// Bytes of a job, a reply or a rise: an envelope, its answer with all that a client is told, and their heads.
    package static let payloadBytes = 1 << 20
    /// The version of these frames.
    package static let version: UInt16 = 1
}

/// Why a link is ended.
package enum LinkError: Error, Equatable, Sendable {
    /// A frame or a part of it is longer than allowed.
    case tooLong
    /// A frame ends within a field, or has bytes after the last one.
    case malformed
    case unknownKind(UInt8)
    /// The first frame is no hello, or a later one is.
    case unexpectedHello
    case otherVersion(UInt16)
}

/// One frame.
package enum LinkFrame: Equatable, Sendable {
    case hello(GatewayID)
    case jobs([SentJob<[UInt8]>])
    case replies([SentReply<[UInt8]>])
    case rise(version: UInt64, [UInt8])
    case acknowledged(version: UInt64)
    case ping(UInt64)
    case pong(UInt64)

    fileprivate enum Kind: UInt8 { case hello = 1, jobs, replies, rise, acknowledged, ping, pong }
}

// MARK: Writing

extension LinkFrame {
    /// Frames with jobs, each within the bounds, in their order.
    ///
    /// - Precondition: no job is longer than ``LinkLimits/payloadBytes``.
    package static func frames(of jobs: [SentJob<[UInt8]>]) -> [LinkFrame] {
        parts(of: jobs) { $0.job.count }.map { .jobs(Array($0)) }
    }

    /// As ``frames(of:)-swift.type.method`` for replies.
    package static func frames(of replies: [SentReply<[UInt8]>]) -> [LinkFrame] {
        parts(of: replies) { if case .done(let reply) = $0.outcome { reply.count } else { 0 } }.map {
            .replies(Array($0))
        }
    }

    /// Bytes of an entry besides its payload, at most.
    private static let head = 16 + 1 + 8 + 1 + 4

    private static func parts<Entry>(of entries: [Entry], size: (Entry) -> Int) -> [ArraySlice<Entry>] {
        var (parts, start, bytes): ([ArraySlice<Entry>], Int, Int) = ([], 0, 3)
        for (place, entry) in entries.enumerated() {
            let own = head + size(entry)
            precondition(own - head <= LinkLimits.payloadBytes)
            if place - start == LinkLimits.batch || bytes + own > LinkLimits.frameBytes {
                parts.append(entries[start..<place])
                (start, bytes) = (place, 3)
            }
            bytes += own
        }
        if start < entries.count { parts.append(entries[start...]) }
        return parts
    }

    /// Appends the frame.
    package func write(to bytes: inout [UInt8]) {
        let start = bytes.count
        bytes.append(contentsOf: [0, 0, 0, 0])
        switch self {
        case .hello(let gateway):
            bytes.append(Kind.hello.rawValue)
            bytes.append(number: LinkLimits.version)
            bytes.append(number: gateway.number)
        case .jobs(let jobs):
            bytes.append(Kind.jobs.rawValue)
            bytes.append(number: UInt16(jobs.count))
            for job in jobs {
                bytes.append(job.token, job.shard, job.epoch)
                bytes.append(payload: job.job)
            }
        case .replies(let replies):
            bytes.append(Kind.replies.rawValue)
            bytes.append(number: UInt16(replies.count))
            for reply in replies {
                bytes.append(reply.token, reply.shard, reply.epoch)
                switch reply.outcome {
                case .done(let payload):
                    bytes.append(1)
                    bytes.append(payload: payload)
                case .failed: bytes.append(2)
                case .notMine: bytes.append(3)
                }
            }
        case .rise(let version, let rise):
            bytes.append(Kind.rise.rawValue)
            bytes.append(number: version)
            bytes.append(payload: rise)
        case .acknowledged(let number): bytes.append(.acknowledged, number)
        case .ping(let number): bytes.append(.ping, number)
        case .pong(let number): bytes.append(.pong, number)
        }
        let length = bytes.count - start - 4
        precondition(length <= LinkLimits.frameBytes)
        for place in 0..<4 { bytes[start + place] = UInt8(truncatingIfNeeded: length >> (8 * (3 - place))) }
    }
}

extension [UInt8] {
    fileprivate mutating func append(number: some FixedWidthInteger & UnsignedInteger) {
        for shift in stride(from: number.bitWidth - 8, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    fileprivate mutating func append(payload: [UInt8]) {
        precondition(payload.count <= LinkLimits.payloadBytes)
        append(number: UInt32(payload.count))
        append(contentsOf: payload)
    }

    fileprivate mutating func append(_ token: JobToken, _ shard: Shard, _ epoch: UInt64) {
        append(number: token.high)
        append(number: token.low)
        append(shard.number)
        append(number: epoch)
    }

    fileprivate mutating func append(_ kind: LinkFrame.Kind, _ number: UInt64) {
        append(kind.rawValue)
        append(number: number)
    }
}

// MARK: Reading

/// Reads the frames of one side of a link from bytes in any pieces.
package struct LinkReader: Sendable {
    private var bytes: [UInt8] = []
    /// The first byte that is not read.
    private var place = 0
    private var hasHello = false
    private var error: LinkError?

    package init() {}

    /// Adds received bytes.
    package mutating func receive(_ new: some Sequence<UInt8>) {
        guard error == nil else { return }
        if place > 0 {
            bytes.removeFirst(place)
            place = 0
        }
        bytes.append(contentsOf: new)
    }

    /// The next whole frame; nil if there is none yet. After an error there is never one.
    package mutating func next() throws(LinkError) -> LinkFrame? {
        if let error { throw error }
        do throws(LinkError) {
            return try read()
        } catch {
            self.error = error
            bytes = []
            throw error
        }
    }

    private mutating func read() throws(LinkError) -> LinkFrame? {
        var fields = Fields(bytes: bytes[place...])
        guard fields.bytes.count >= 4 else { return nil }
        // The length is checked before its bytes are there.
        let length = Int(try fields.number(UInt32.self))
        guard length <= LinkLimits.frameBytes else { throw .tooLong }
        guard fields.bytes.count >= length else { return nil }
        fields.bytes = fields.bytes.prefix(length)
        let frame = try fields.frame()
        guard fields.bytes.isEmpty else { throw .malformed }
        let isHello = if case .hello = frame { true } else { false }
        guard isHello != hasHello else { throw .unexpectedHello }
        hasHello = true
        place += 4 + length
        return frame
    }
}

/// The fields of one frame.
private struct Fields {
    var bytes: ArraySlice<UInt8>

    mutating func number<Number: FixedWidthInteger & UnsignedInteger>(_: Number.Type) throws(LinkError) -> Number {
        let size = Number.bitWidth / 8
        guard bytes.count >= size else { throw .malformed }
        defer { bytes = bytes.dropFirst(size) }
        return bytes.prefix(size).reduce(0) { $0 << 8 | Number($1) }
    }

    mutating func payload() throws(LinkError) -> [UInt8] {
        let size = Int(try number(UInt32.self))
        guard size <= LinkLimits.payloadBytes else { throw .tooLong }
        guard bytes.count >= size else { throw .malformed }
        defer { bytes = bytes.dropFirst(size) }
        return Array(bytes.prefix(size))
    }

    private mutating func count() throws(LinkError) -> Int {
        let count = Int(try number(UInt16.self))
        guard count <= LinkLimits.batch else { throw .tooLong }
        return count
    }

    private mutating func head() throws(LinkError) -> (JobToken, Shard, epoch: UInt64) {
        let token = JobToken(high: try number(UInt64.self), low: try number(UInt64.self))
        return (token, Shard(try byte()), try number(UInt64.self))
    }

    private mutating func byte() throws(LinkError) -> UInt8 {
        guard let first = bytes.popFirst() else { throw .malformed }
        return first
    }

    mutating func frame() throws(LinkError) -> LinkFrame {
        let byte = try byte()
        guard let kind = LinkFrame.Kind(rawValue: byte) else { throw .unknownKind(byte) }
        switch kind {
        case .hello:
            let version = try number(UInt16.self)
            guard version == LinkLimits.version else { throw .otherVersion(version) }
            return .hello(GatewayID(try number(UInt64.self)))
        case .jobs:
            var jobs: [SentJob<[UInt8]>] = []
            for _ in 0..<(try count()) {
                let (token, shard, epoch) = try head()
                jobs.append(SentJob(token: token, shard: shard, epoch: epoch, job: try payload()))
            }
            return .jobs(jobs)
        case .replies:
            var replies: [SentReply<[UInt8]>] = []
            for _ in 0..<(try count()) {
                let (token, shard, epoch) = try head()
                replies.append(SentReply(token: token, shard: shard, epoch: epoch, outcome: try outcome()))
            }
            return .replies(replies)
        case .rise: return .rise(version: try number(UInt64.self), try payload())
        case .acknowledged: return .acknowledged(version: try number(UInt64.self))
        case .ping: return .ping(try number(UInt64.self))
        case .pong: return .pong(try number(UInt64.self))
        }
    }

    private mutating func outcome() throws(LinkError) -> JobOutcome<[UInt8]> {
        switch try byte() {
        case 1: .done(try payload())
        case 2: .failed
        case 3: .notMine
        default: throw .malformed
        }
    }
}
