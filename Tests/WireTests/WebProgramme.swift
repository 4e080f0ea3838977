import NIOCore

#if FUZZ_WEB
    import Glibc
#else
    @testable import HTTPCodec
    @testable import JSONCodec
#endif

/// Bytes for everything that reads HTTP, WebSockets, forms and JSON: the first byte says what, the second one how.
/// `Tests/fuzz web` grows them, `ProgrammeTests` draws them.
///
/// What comes byte by byte is read as what comes at once. What is accepted is written again, and is then read as the same.
enum WebProgramme {
    /// What must not happen.
    struct Finding: Error {
        let text: String
    }

    static let readerCount = 9

    private static func demand(_ holds: Bool, _ text: @autoclosure () -> String) throws {
        guard holds else { throw Finding(text: text()) }
    }

    static func run(_ input: [UInt8]) throws {
        guard input.count > 1 else { return }
        let (kind, choice) = (Int(input[0]) % readerCount, input[1])
        let bytes = Array(input.dropFirst(2))
        switch kind {
        case 0: try requests(bytes)
        case 1: try responses(bytes, isToHead: choice & 1 == 1)
        case 2: try frames(bytes, isMasked: choice & 1 == 1, passes: choice & 2 == 2)
        case 3: try parts(bytes)
        case 4: try stream(bytes, isEnd: choice & 1 == 1)
        case 5: try target(bytes)
        case 6: try document(bytes, choice)
        case 7: try fields(bytes)
        default: try template(bytes, choice)
        }
    }

    /// Calls `take` with pieces of a size.
    private static func divide(_ bytes: [UInt8], _ size: Int, _ take: (ArraySlice<UInt8>) throws -> Bool) rethrows {
        for start in stride(from: 0, to: bytes.count, by: size) {
            guard try take(bytes[start..<min(start + size, bytes.count)]) else { return }
        }
    }

    // MARK: HTTP/1.1

    /// What was read of one side of a connection.
    private struct Messages: Equatable {
        var requests: [ReceivedRequest] = []
        var responses: [ReceivedResponse] = []
        var content: [UInt8] = []
        var trailers: [HeaderFields] = []
        var fault: HTTPFault?
    }

    /// - Parameter isToHead: nil for requests.
    private static func read(_ bytes: [UInt8], _ size: Int, isToHead: Bool?) -> Messages {
        var (messages, buffer, head) = (Messages(), ByteBuffer(), HeadReader())
        var body: BodyReader?
        /// Reads one part; false if more bytes are needed.
        func next() throws(HTTPFault) -> Bool {
            if var reader = body {
                let piece = try reader.next(&buffer)
                body = reader
                switch piece {
                case .bytes(let bytes): messages.content += bytes.readableBytesView
                case .end(let fields):
                    messages.trailers.append(fields)
                    body = nil
                case nil: return false
                }
                return true
            }
            if let isToHead {
                guard let response = try head.response(&buffer, isToHead: isToHead) else { return false }
                messages.responses.append(response)
                body = BodyReader(response.framing)
            } else {
                guard let request = try head.request(&buffer) else { return false }
                messages.requests.append(request)
                body = BodyReader(request.framing)
            }
            return true
        }
        divide(bytes, size) { piece in
            buffer.writeBytes(piece)
            do throws(HTTPFault) {
                while try next() {}
                return true
            } catch {
                messages.fault = error
                return false
            }
        }
        return messages
    }

    private static func requests(_ bytes: [UInt8]) throws {
        let messages = read(bytes, max(bytes.count, 1), isToHead: nil)
        try demand(read(bytes, 1, isToHead: nil) == messages, "requests in pieces are other requests")
        for request in messages.requests where request.minorVersion == 1 {
            try demand(again(request.head) == request, "a request is written as another")
            var forwarding = Forwarding(address: "::1", isSecure: true, trustsPeer: bytes.count % 2 == 0)
            let forwarded = forwarding.request(request.head, isChunked: request.framing == .chunked)
            try demand(again(forwarded)?.framing == request.framing, "a request is forwarded with another body")
        }
    }

    private static func again(_ head: RequestHead) -> ReceivedRequest? {
        var (buffer, reader) = (ByteBuffer(), HeadReader())
        buffer.write(head)
        guard let request = try? reader.request(&buffer), buffer.readableBytes == 0 else { return nil }
        return request
    }

    private static func responses(_ bytes: [UInt8], isToHead: Bool) throws {
        let messages = read(bytes, max(bytes.count, 1), isToHead: isToHead)
        try demand(read(bytes, 1, isToHead: isToHead) == messages, "responses in pieces are other responses")
        for response in messages.responses {
            var (buffer, reader) = (ByteBuffer(), HeadReader())
            buffer.write(response.head)
            let again = try? reader.response(&buffer, isToHead: isToHead)
            try demand(
                again?.head == response.head && again?.framing == response.framing && buffer.readableBytes == 0,
                "a response is written as another")
        }
    }

    // MARK: HTTP/2

    /// Fields of a stream, a line each: name, tabulator, value. What is accepted is one request of HTTP/1.1.
    private static func stream(_ bytes: [UInt8], isEnd: Bool) throws {
        var fields = HeaderFields()
        for line in bytes.split(separator: 0x0A) {
            let parts = line.split(separator: 0x09, maxSplits: 1, omittingEmptySubsequences: false)
            fields.add(
                String(decoding: parts[0], as: UTF8.self),
                parts.count > 1 ? String(decoding: parts[1], as: UTF8.self) : "")
        }
        guard var request = try? HTTP2Request(fields, isEnd: isEnd, limits: .standard) else { return }
        if case .success(let received) = request.received {
            let again = again(received.head)
            try demand(
                again?.head == received.head && again?.framing == received.framing, "a stream is another request")
        }
        _ = try? request.take(bytes.count, isEnd: false)
        _ = try? request.take(fields, isEnd: true)
    }

    // MARK: WebSocket

    private struct Frames: Equatable {
        var messages: [WebSocketMessage] = []
        /// Of messages that are too long: their bytes, and the opcodes of those that are over.
        var passed: [[UInt8]] = []
        var opcodes: [UInt8] = []
        var begun: UInt8 = 0
        var fault: FrameFault?

        /// Reads one message, or one piece of one; false if more bytes are needed.
        mutating func take(_ reader: inout FrameReader, _ buffer: inout ByteBuffer) throws(FrameFault) -> Bool {
            guard reader.isPassing else {
                guard let message = try reader.next(&buffer) else { return false }
                messages.append(message)
                return true
            }
            switch try reader.nextPiece(&buffer) {
            case .data(let bytes, let opcode, let isLast):
                if passed.count == opcodes.count { passed.append([]) }
                passed[passed.count - 1] += bytes.readableBytesView
                if opcode != 0 { begun = opcode }
                if isLast { opcodes.append(begun) }
            case .control(let message): messages.append(message)
            case nil: return false
            }
            return true
        }
    }

    /// Messages of at most 20 bytes; longer ones pass in pieces, or are an error.
    private static func frames(_ bytes: [UInt8], isMasked: Bool, passes: Bool) throws {
        func read(_ size: Int) -> Frames {
            var (frames, buffer) = (Frames(), ByteBuffer())
            var reader = FrameReader(isMasked: isMasked, limit: 20)
            divide(bytes, size) { piece in
                buffer.writeBytes(piece)
                while true {
                    do throws(FrameFault) {
                        guard try frames.take(&reader, &buffer) else { return true }
                    } catch {
                        guard error == .tooLong, passes, !reader.isPassing else {
                            frames.fault = error
                            return false
                        }
                        reader.pass()
                    }
                }
            }
            return frames
        }
        let frames = read(max(bytes.count, 1))
        try demand(read(1) == frames, "frames in pieces are other frames")
        // Messages that pass as they are, are messages.
        var (reader, buffer) = (FrameReader(isMasked: isMasked, limit: 20), ByteBuffer(bytes: bytes))
        var count = 0
        let length = reader.wholeMessages(in: buffer) { payload, _ in
            count += 1
            return payload.count <= 20
        }
        guard length > 0 else { return }
        var front = buffer.readSlice(length: length) ?? ByteBuffer()
        for _ in 0..<count where front.readableBytes > 0 {
            guard case .data? = try? reader.next(&front) else { throw Finding(text: "something else passes") }
        }
        try demand(front.readableBytes == 0, "a part of a message passes")
    }

    // MARK: Paths, forms and JSON

    private static func target(_ bytes: [UInt8]) throws {
        let text = String(decoding: bytes, as: UTF8.self)
        let head = RequestHead("GET", text)
        let query = RequestQuery(head.query)
        for name in ["", "a", "since"] { _ = query[name] }
        _ = PercentCoding.lenient(text[...].utf8)
        guard let path = RequestPath(head.path) else {
            return try demand(RequestPath.fault(head.path) != nil, "a path is refused without a reason")
        }
        let again = "/" + path.segments.map(PercentCoding.segment).joined(separator: "/")
        try demand(RequestPath(again[...])?.segments == path.segments, "a path is encoded as another")
    }

    /// A form in parts. Its head has been read.
    private static func parts(_ bytes: [UInt8]) throws {
        guard let boundary = MultipartBoundary(Array("boundary".utf8)) else { return }
        struct Form: Equatable {
            var heads: [MultipartHead] = []
            var contents: [[UInt8]] = []
            var fault: MultipartFault?
        }
        func read(_ size: Int) -> Form {
            var (form, reader) = (Form(), MultipartReader(boundary))
            do throws(MultipartFault) {
                for start in stride(from: 0, to: bytes.count, by: size) {
                    bytes[start..<min(start + size, bytes.count)].withUnsafeBytes { reader.append($0) }
                    while let piece = try reader.next() {
                        switch piece {
                        case .head(let head):
                            form.heads.append(head)
                            form.contents.append([])
                        case .bytes(let bytes): form.contents[form.contents.count - 1] += bytes
                        case .end, .over: break
                        }
                    }
                }
                try reader.finish()
            } catch {
                form.fault = error
            }
            return form
        }
        let form = read(max(bytes.count, 1))
        try demand(read(1) == form, "a form in pieces is another form")
        try demand(form.heads.allSatisfy { !$0.name.isEmpty }, "a part without a name")
    }

    /// A form as an address has it: a changed field is found in what is written.
    private static func fields(_ bytes: [UInt8]) throws {
        guard let document = try? JSONDocument(form: ByteBuffer(bytes: bytes)),
            let first = Array(document.children(document.root)).first
        else { return }
        var edits = JSONEdits(document)
        edits.replace(first, with: .string("x y&=\u{E9}"))
        guard let written = try? edits.apply() else { return }
        let again = try? JSONDocument(form: written)
        let texts = again.map { again in again.children(again.root).map { try? again.text($0) } }
        try demand(texts?.first == "x y&=\u{E9}", "a form is written as another")
        try demand(texts?.count == document.count(document.root), "a form has other fields")
    }

    private static func document(_ bytes: [UInt8], _ choice: UInt8) throws {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)) else { return }
        try walk(document, document.root)
        try edit(document, choice)
        guard let path = try? JSONPath("a"), let other = try? JSONPath("*.b"),
            let parsed = try? document.parsing([path, other])
        else { return }
        try walk(parsed, parsed.root)
        try edit(parsed, choice)
    }

    private static func walk(_ document: JSONDocument, _ place: JSONPlace) throws {
        let range = document.range(place)
        try demand(range.upperBound <= document.bytes.readableBytes && !range.isEmpty, "a value beyond its document")
        switch document.kind(place) {
        case .string: try demand((try? document.utf8(place)) != nil || !document.isText(place), "a text is not read")
        case .number: _ = (document.integer(place), document.numberText(place))
        case .object, .array:
            var count = 0
            for child in document.children(place) {
                count += 1
                _ = try? document.name(child)
                try walk(document, child)
            }
            try demand(count == document.count(place), "another number of values")
        case .boolean, .null: break
        }
    }

    /// What edits write is a document again, and has what they have set.
    private static func edit(_ document: JSONDocument, _ choice: UInt8) throws {
        let children = Array(document.children(document.root))
        var edits = JSONEdits(document)
        if document.kind(document.root) == .object { edits.insert("pawl", .boolean(true), into: document.root) }
        if !children.isEmpty {
            let child = children[Int(choice) % children.count]
            choice & 0x80 == 0 ? edits.replace(child, with: .string("x\n\u{1F512}")) : edits.remove(child)
        }
        guard let written = try? edits.apply() else { return }
        guard let again = try? JSONDocument(written) else { throw Finding(text: "what is written is no document") }
        guard document.kind(document.root) == .object else { return }
        let flag = again.member("pawl", of: again.root)
        try demand(flag.map { again.boolean($0) == true } ?? false, "a member that was set is not there")
    }

    /// What a template recognises has the values of the first document at the same places.
    private static func template(_ bytes: [UInt8], _ choice: UInt8) throws {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)),
            let template = JSONTemplate(document, fixed: [Array("t".utf8)], ids: [Array("id".utf8)])
        else { return }
        try demand(bytes.withUnsafeBytes { template.matches($0) }, "a document is not recognised")
        for place in bytes.indices {
            var changed = bytes
            changed[place] = choice
            guard changed.withUnsafeBytes({ template.matches($0) }) else { continue }
            let again = try? JSONDocument(ByteBuffer(bytes: changed))
            try demand(again?.valueCount == document.valueCount, "something else is recognised")
        }
    }
}

#if FUZZ_WEB
    /// One input of the fuzzer: ends the process where something is found.
    @_cdecl("LLVMFuzzerTestOneInput")
    public func fuzzWeb(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
        do {
            try WebProgramme.run(Array(UnsafeBufferPointer(start: start, count: count)))
        } catch {
            print("FINDING: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    }
#endif
