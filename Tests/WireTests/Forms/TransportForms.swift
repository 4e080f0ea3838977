import Foundation
import NIOCore

@testable import TransportCodec
@testable import TransportsCore

/// Frames between clients and services of transports, CBOR, and the envelopes of requests and replies.
enum TransportForms {
    static let readers: [FormProgramme.Reader] = [
        { try frames(&$0) }, { try stream(&$0) }, { try cbor(&$0) }, { try json(&$0) }, { try envelopes(&$0) },
        { try values(&$0) }, { try exchanges(&$0) },
    ]

    private static func buffer(_ frames: [Frame]) -> [UInt8] {
        var buffer = ByteBuffer()
        for frame in frames { frame.write(to: &buffer) }
        return Array(buffer.readableBytesView)
    }

    private static func payload(_ input: inout FormInput) -> ByteBuffer {
        ByteBuffer(bytes: input.take(input.byte() % 20))
    }

    private static func drawn(_ input: inout FormInput) -> [Frame] {
        (0...input.byte() % 4).map { _ in
            let id = UInt64(max(input.number(), 1))
            return switch input.byte() % 8 {
            case 0: .hello(version: UInt8(input.byte()), proto: payload(&input))
            case 1: .welcome(version: UInt8(input.byte()))
            case 2: .unavailable(reason: payload(&input))
            case 3: .request(id: id << 40 | id, payload(&input))
            case 4: .reply(id: id, payload(&input))
            case 5: .failure(id: id, code: Int32(input.number()) - 30_000, reason: payload(&input))
            case 6: .cancel(id: id)
            default: .drain
            }
        }
    }

    private struct Reading: Equatable {
        var frames: [Frame] = []
        var fault: FrameError?
        var isWhole = false
    }

    /// Reads a stream in pieces, and looks at the memory that the reader holds.
    private static func read(_ bytes: [UInt8], _ size: Int, limit: Int) throws -> Reading {
        var (reading, reader) = (Reading(), FrameReader(limit: limit))
        FormInput.divide(bytes, size) { piece in
            reader.append(ByteBuffer(bytes: piece))
            do throws(FrameError) {
                while let frame = try reader.next() { reading.frames.append(frame) }
                return true
            } catch {
                reading.fault = error
                return false
            }
        }
        // A buffer doubles, and its first bytes may be read ones.
        try demand(reader.storage <= max(8 * (limit + Frame.lengthSize + size), 64), "frames fill the memory")
        do throws(FrameError) {
            try reader.finish()
            reading.isWhole = true
        } catch {
            try demand(reading.fault == nil || error == reading.fault, "a reader has failed and now fails otherwise")
        }
        if reading.fault != nil {
            reader.append(ByteBuffer(bytes: buffer([.drain])))
            try demand((try? reader.next()) == nil, "a reader that has failed reads on")
        }
        return reading
    }

    /// Frames are read as they were written.
    private static func frames(_ input: inout FormInput) throws {
        let frames = drawn(&input)
        let reading = try read(buffer(frames), 1 + input.byte(), limit: Frame.lengthLimit(message: 20))
        try demand(reading == Reading(frames: frames, fault: nil, isWhole: true), "frames are read as others")
    }

    /// A stream in pieces has the frames of the whole, and frames are written in the same bytes.
    private static func stream(_ input: inout FormInput) throws {
        let limit = input.byte() % 64
        let bytes = input.changed(buffer(drawn(&input)))
        let whole = try read(bytes, bytes.count, limit: limit)
        for size in [1, 7] {
            try demand(try read(bytes, size, limit: limit) == whole, "frames in pieces are other frames")
        }
        let written = buffer(whole.frames)
        try demand(bytes.starts(with: written), "frames are written in other bytes")
        if whole.isWhole { try demand(written == bytes, "bytes are lost between frames") }
        try demand(!whole.isWhole || whole.fault == nil, "a stream that is whole has failed")
    }

    /// A value is written in a form that is read as the same one.
    private static func cbor(_ input: inout FormInput) throws {
        let genuine = CBORValue.map([
            ("a", .array([.integer(-1), .integer(1 << 40), .double(0.5), .null])), ("b", .bool(true)),
            ("\u{E9}", .text("text")), ("m", .map([("", .integer(.min))])),
        ])
        let bytes = input.changed(genuine.bytes)
        guard let value = try? CBORValue(bytes) else { return }
        let written = value.bytes
        try demand(count(value) <= bytes.count, "a value has more parts than bytes")
        try demand(written.count <= 2 * bytes.count, "a value is written in twice the bytes")
        let again = try? CBORValue(written)
        // Bytes, because a value that is no number is not equal to itself.
        try demand(again?.bytes == written, "a value is written as another")
        guard let json = try? JSONEncoder().encode(value) else { return }
        let read = try JSONDecoder().decode(CBORValue.self, from: json)
        let once = try JSONDecoder().decode(CBORValue.self, from: try JSONEncoder().encode(read))
        try demand(once == read, "a value becomes another in JSON")
        try demand(count(read) == count(value), "JSON has another number of parts")
    }

    private static func count(_ value: CBORValue) -> Int {
        switch value {
        case .array(let values): 1 + values.reduce(0) { $0 + count($1) }
        case .map(let pairs): 1 + pairs.reduce(0) { $0 + 1 + count($1.value) }
        default: 1
        }
    }

    /// What JSON says comes out of CBOR.
    private static func json(_ input: inout FormInput) throws {
        let genuine = #"{"a":[1,-2,0.5,1e3,18446744073709551615],"b":{"c":null,"d":true},"e":"\u00e9"}"#
        let bytes = Data(input.changed(Array(genuine.utf8)))
        guard let value = try? JSONDecoder().decode(CBORValue.self, from: bytes) else { return }
        guard let again = try? CBORValue(value.bytes) else {
            // CBOR has a bound for its levels.
            return
        }
        try demand(again == value, "a value of JSON becomes another in CBOR")
    }

    // MARK: Envelopes

    /// Types that apps send.
    private struct Request: Codable, Equatable {
        var text: String
        var signed: Int64
        var unsigned: UInt64
        var real: Double
        var flag: Bool
        var list: [String]
        var numbers: [UInt64]
        var data: Data
        var optional: Int?
    }

    private static func request(_ input: inout FormInput) -> Request {
        func wide() -> UInt64 { (0..<4).reduce(0) { number, _ in number << 16 | UInt64(input.number()) } }
        let real = Double(bitPattern: wide())
        return Request(
            text: input.text(), signed: Int64(bitPattern: wide()), unsigned: wide(),
            real: real.isFinite ? real : 0, flag: input.byte() % 2 == 0, list: [input.text(), input.text()],
            numbers: [UInt64(input.byte()), wide()], data: Data(input.take(input.byte() % 9)),
            optional: input.byte() % 2 == 0 ? nil : input.byte())
    }

    private static func serializer(_ input: inout FormInput) -> Serializer { input.byte() % 2 == 0 ? .cbor : .json }

    /// A request and a reply are read as they were written.
    private static func values(_ input: inout FormInput) throws {
        let serializer = serializer(&input)
        let request = request(&input)
        let head = RequestHead(proto: ProtocolID(input.text()), method: input.text(), id: UInt64(input.number()) << 30)
        let data = try serializer.data(RequestEnvelope(head: head, request: request)).get()
        let read = try Serializer.value(RequestEnvelope<Request>.self, in: data).get()
        try demand(read.request == request, "\(request) comes as \(read.request)")
        try demand(
            read.head.proto == head.proto && read.head.method == head.method && read.head.id == head.id,
            "another head")
        let reply = try serializer.data(ReplyEnvelope<Request>(id: head.id, result: .success(request))).get()
        try demand(
            try Serializer.value(ReplyEnvelope<Request>.self, in: reply).get().result == .success(request),
            "another reply")
    }

    /// An envelope that is accepted is written by both serializers as one that is read alike.
    private static func envelopes(_ input: inout FormInput) throws {
        let first = serializer(&input)
        let head = RequestHead(proto: "chat/1", method: "say", id: 7)
        let isReply = input.byte() % 2 == 0
        let failure = TesseractError(code: -3, reason: "no")
        let genuine =
            isReply
            ? first.data(
                ReplyEnvelope<[String]>(id: 7, result: input.byte() % 2 == 0 ? .success(["a"]) : .failure(failure)))
            : first.data(RequestEnvelope(head: head, request: ["a", "b"]))
        let data = Data(input.changed(Array(try genuine.get())))
        _ = Serializer.value(ReplyHead.self, in: data)
        for second in Serializer.allCases {
            if isReply, case .success(let reply) = Serializer.value(ReplyEnvelope<[String]>.self, in: data) {
                let again = Serializer.value(ReplyEnvelope<[String]>.self, in: try second.data(reply).get())
                try demand(try again.get().id == reply.id, "a reply to another request")
                try demand(try again.get().result == reply.result, "another reply")
            } else if !isReply, case .success(let request) = Serializer.value(RequestEnvelope<[String]>.self, in: data)
            {
                let again = try Serializer.value(
                    RequestEnvelope<[String]>.self, in: try second.data(request).get()
                ).get()
                try demand(again.request == request.request && again.head.id == request.head.id, "another request")
            }
        }
    }

    // MARK: Exchanges

    /// Each reply reaches its own receiver, once, and nothing is kept for what was never sent.
    private static func exchanges(_ input: inout FormInput) throws {
        var exchanges = Exchanges<UInt64, UInt64>(limit: 1 + input.byte() % 8)
        var (opened, open, replied): ([UInt64], Set<UInt64>, Set<UInt64>) = ([], [], [])
        while !input.isAtEnd {
            let id = UInt64(input.byte() % 16)
            switch input.byte() % 6 {
            case 0:
                guard let new = try? exchanges.open(for: UInt64(opened.count + 1)) else { break }
                try demand(new == UInt64(opened.count + 1), "an id twice")
                opened.append(new)
                open.insert(new)
            case 1:
                guard let new = try? exchanges.openUnclaimed() else { break }
                try demand(new == UInt64(opened.count + 1), "an id twice")
                opened.append(new)
                open.insert(new)
            case 2:
                switch exchanges.arrived(id, id) {
                case .deliver, .kept:
                    try demand(open.contains(id) && replied.insert(id).inserted, "a reply to what does not wait")
                case .dropped: try demand(!open.contains(id) || replied.contains(id), "a reply is lost")
                case .unknown: try demand(id == 0 || id > UInt64(opened.count), "a request is not known")
                }
            case 3:
                _ = exchanges.cancel(id)
                open.remove(id)
            case 4:
                if case .reply(let reply) = exchanges.receive(id) {
                    try demand(open.contains(reply) && replied.contains(reply), "a reply that never came")
                }
            default: if id == 15 { exchanges.drain() }
            }
            try demand(exchanges.count <= exchanges.limit, "more exchanges than allowed")
        }
        for waiter in exchanges.end(0) { try demand(waiter <= 16 || open.contains(waiter), "a waiter of another") }
        try demand((try? exchanges.openUnclaimed()) == nil, "a request after the end")
    }
}
