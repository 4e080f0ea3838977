import NIOCore

/// One client of the sink: registration, capabilities, and messages relayed to other clients.
///
/// What is written to any connection while one reads is flushed once, when that read is complete.
final class SinkConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A real server cuts a relayed line to 512 bytes with its end; so does the sink, or it would hide a fault.
    private static let lineLimit = 512
    private static let nickLimit = 30

    let directory: SinkDirectory
    private var context: ChannelHandlerContext?
    private var reader = LineReader()
    private var outbound = ByteBuffer()
    private var owesFlush = false
    private var isClosing = false
    /// The rooms that the client is in, folded.
    var rooms: Set<String> = []

    var nick = ""
    private var user = ""
    var prefix = ""
    private var isRegistered = false
    private var isNegotiating = false
    var capabilities: SinkCapabilities = []

    init(directory: SinkDirectory) {
        self.directory = directory
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.reader.read(Self.unwrapInboundIn(data)) { self.receive($0) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.directory.flush()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.leaveRooms()
        let key = self.nick.lowercased()
        if self.directory[key] === self {
            self.directory[key] = nil
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    /// Sends what was written.
    func flush() {
        self.owesFlush = false
        guard let context = self.context else { return }
        context.writeAndFlush(Self.wrapOutboundOut(self.outbound), promise: nil)
        self.outbound.clear()
        if self.isClosing {
            context.close(promise: nil)
        }
    }

    func write(_ body: (inout ByteBuffer) -> Void) {
        body(&self.outbound)
        if !self.owesFlush {
            self.owesFlush = true
            self.directory.owesFlush(self)
        }
    }
}

// MARK: - Commands

extension SinkConnection {
    private func receive(_ line: UnsafeRawBufferPointer) {
        var words = Words(line)
        let tags = MessageTags(words.next(markedBy: UInt8(ascii: "@")), self.capabilities)
        _ = words.next(markedBy: UInt8(ascii: ":"))
        guard let verb = words.next() else { return }
        if self.isRegistered {
            if verb.equals("PRIVMSG") || verb.equals("NOTICE") || verb.equals("TAGMSG") {
                return self.relay(verb, &words, tags)
            }
            if verb.equals("PING") {
                let token = words.next()?.string ?? ""
                return self.reply("PONG relay.sink :\(token)", tags)
            }
            if verb.equals("JOIN") {
                return self.join(words.next()?.foldedString ?? "", tags)
            }
        }
        if verb.equals("CAP") {
            self.negotiate(&words, tags)
        } else if verb.equals("NICK") {
            self.rename(words.next(), tags)
        } else if verb.equals("USER") {
            self.user = words.next()?.string ?? "user"
            self.registerIfComplete()
        } else if verb.equals("QUIT") {
            self.isClosing = true
            self.reply("ERROR :Closing link", tags, isNamed: false)
        } else if verb.equals("PING") {
            self.reply("PONG relay.sink :\(words.next()?.string ?? "")", tags)
        } else if verb.equals("PONG") || verb.equals("PASS") {
            return
        } else if self.isRegistered {
            self.reply("421 \(self.nick) \(verb.string) :Unknown command", tags)
        } else {
            self.reply("451 * :You have not registered", tags)
        }
    }

    /// One line of the sink's own, with the label of the command that it answers.
    func reply(_ text: String, _ tags: MessageTags = .none, isNamed: Bool = true) {
        self.write { buffer in
            if let label = tags.label {
                buffer.writeString("@label=")
                buffer.writeBytes(label)
                buffer.writeString(" ")
            }
            buffer.writeString(isNamed ? ":relay.sink \(text)\r\n" : "\(text)\r\n")
        }
    }

    private func negotiate(_ words: inout Words, _ tags: MessageTags) {
        let name = self.nick.isEmpty ? "*" : self.nick
        let subcommand = words.next()?.string ?? ""
        switch subcommand {
        case "LS":
            self.isNegotiating = !self.isRegistered
            self.reply("CAP \(name) LS :\(self.directory.offered.list)", tags)
        case "LIST":
            self.reply("CAP \(name) LIST :\(self.capabilities.list)", tags)
        case "REQ":
            self.isNegotiating = !self.isRegistered
            let wanted = words.next()?.string ?? ""
            self.reply("CAP \(name) \(self.apply(wanted) ? "ACK" : "NAK") :\(wanted)", tags)
        case "END":
            self.isNegotiating = false
            self.registerIfComplete()
        default:
            self.reply("410 \(name) \(subcommand) :Invalid CAP command", tags)
        }
    }

    /// Takes on all of the wanted capabilities, or none.
    private func apply(_ wanted: String) -> Bool {
        var result = self.capabilities
        for word in wanted.split(separator: " ") {
            let isRemoved = word.hasPrefix("-")
            let name = isRemoved ? word.dropFirst() : word
            guard let known = SinkCapabilities.names.first(where: { $0.name == name })?.capability,
                self.directory.offered.contains(known)
            else { return false }
            if isRemoved {
                result.remove(known)
            } else {
                result.insert(known)
            }
        }
        self.capabilities = result
        return true
    }

    private func rename(_ wanted: UnsafeRawBufferPointer?, _ tags: MessageTags) {
        let current = self.nick.isEmpty ? "*" : self.nick
        guard let wanted, !wanted.isEmpty else { return self.reply("431 \(current) :No nickname given", tags) }
        let nick = wanted.string
        guard wanted.count <= Self.nickLimit else {
            return self.reply("432 \(current) \(nick) :Nickname too long", tags)
        }
        let key = wanted.foldedString
        if let owner = self.directory[key], owner !== self {
            return self.reply("433 \(current) \(nick) :Nickname is already in use", tags)
        }
        self.directory[self.nick.lowercased()] = nil
        self.directory[key] = self
        if self.isRegistered {
            let old = self.prefix
            self.write { $0.writeString(":\(old) NICK :\(nick)\r\n") }
        }
        self.nick = nick
        self.prefix = "\(nick)!\(self.user)@127.0.0.1"
        self.registerIfComplete()
    }

    private func registerIfComplete() {
        guard !self.isRegistered, !self.isNegotiating, !self.nick.isEmpty, !self.user.isEmpty else { return }
        self.isRegistered = true
        self.prefix = "\(self.nick)!\(self.user)@127.0.0.1"
        self.reply("001 \(self.nick) :Welcome to the relay \(self.prefix)")
        self.reply("002 \(self.nick) :Your host is relay.sink")
        self.reply("003 \(self.nick) :This server was created for a benchmark")
        self.reply("004 \(self.nick) relay.sink 1 o o")
        self.reply(
            "005 \(self.nick) CASEMAPPING=ascii CHANTYPES=# NICKLEN=\(Self.nickLimit) :are supported by this server")
        if self.directory.logsIn {
            self.reply("900 \(self.nick) \(self.prefix) \(self.nick) :You are now logged in as \(self.nick)")
        }
        self.reply("422 \(self.nick) :MOTD File is missing")
    }
}

// MARK: - Relay

extension SinkConnection {
    private func relay(_ verb: UnsafeRawBufferPointer, _ words: inout Words, _ tags: MessageTags) {
        guard let target = words.next() else {
            return self.reply("411 \(self.nick) :No recipient given", tags)
        }
        let text = words.next()
        let isRoom = target.first == UInt8(ascii: "#")
        let recipient = isRoom ? nil : self.directory[target.foldedString]
        guard isRoom || recipient?.isRegistered == true else {
            return self.reply("401 \(self.nick) \(target.string) :No such nick", tags)
        }
        if self.directory.isSealed, let text, LoadText.isPlain(text) {
            return self.reply("404 \(self.nick) \(target.string) :The text was not sealed", tags)
        }
        if let recipient {
            recipient.deliver(verb, target, text, from: self.prefix, label: nil, client: tags.client)
        } else {
            guard self.rooms.contains(target.foldedString) else {
                return self.reply("404 \(self.nick) \(target.string) :Cannot send to channel", tags)
            }
            self.fanOut(verb, target, text, client: tags.client)
        }
        if self.capabilities.contains(.echoMessage) {
            self.deliver(verb, target, text, from: self.prefix, label: tags.label, client: tags.client)
        } else if tags.label != nil {
            self.reply("ACK", tags)
        }
    }

    private func deliver(
        _ verb: UnsafeRawBufferPointer, _ target: UnsafeRawBufferPointer, _ text: UnsafeRawBufferPointer?,
        from prefix: String, label: UnsafeRawBufferPointer?, client: UnsafeRawBufferPointer?
    ) {
        self.write { self.write(verb, target, text, from: prefix, label: label, client: client, to: &$0) }
    }

    /// Writes a message as this connection's capabilities have it.
    func write(
        _ verb: UnsafeRawBufferPointer, _ target: UnsafeRawBufferPointer, _ text: UnsafeRawBufferPointer?,
        from prefix: String, label: UnsafeRawBufferPointer?, client: UnsafeRawBufferPointer?,
        to buffer: inout ByteBuffer
    ) {
        let client = self.capabilities.contains(.messageTags) ? client : nil
        if text == nil, client == nil { return }
        var mark = UInt8(ascii: "@")
        func separate() {
            buffer.writeInteger(mark)
            mark = UInt8(ascii: ";")
        }
        if let label {
            separate()
            buffer.writeStaticString("label=")
            buffer.writeBytes(label)
        }
        if self.capabilities.contains(.serverTime) {
            separate()
            buffer.writeStaticString("time=")
            self.directory.writeTime(to: &buffer)
        }
        if let client {
            separate()
            buffer.writeBytes(client)
        }
        if mark == UInt8(ascii: ";") {
            buffer.writeStaticString(" ")
        }
        let start = buffer.writerIndex
        buffer.writeStaticString(":")
        buffer.writeString(prefix)
        buffer.writeStaticString(" ")
        buffer.writeBytes(verb)
        buffer.writeStaticString(" ")
        buffer.writeBytes(target)
        if let text {
            buffer.writeStaticString(" :")
            buffer.writeBytes(text)
        }
        let limit = start + Self.lineLimit - 2
        if buffer.writerIndex > limit {
            buffer.moveWriterIndex(to: limit)
        }
        buffer.writeStaticString("\r\n")
    }
}

/// Of a message's tags what the sink acts on; only what the connection negotiated.
struct MessageTags {
    static var none: MessageTags { MessageTags(nil, []) }

    /// The label, to be given back.
    private(set) var label: UnsafeRawBufferPointer?
    /// The client-only tags, to be relayed. Taken as one run: whoever writes them keeps them together.
    private(set) var client: UnsafeRawBufferPointer?

    init(_ tags: UnsafeRawBufferPointer?, _ capabilities: SinkCapabilities) {
        guard let tags else { return }
        var start = 0
        while start < tags.count {
            let end = tags[start...].firstIndex(of: UInt8(ascii: ";")) ?? tags.count
            let tag = tags[start..<end]
            if tag.first == UInt8(ascii: "+"), capabilities.contains(.messageTags) {
                let begin = self.client?.baseAddress.map { $0 - (tags.baseAddress ?? $0) } ?? start
                self.client = UnsafeRawBufferPointer(rebasing: tags[begin..<end])
            } else if capabilities.contains(.labeledResponse), tag.starts(with: "label=".utf8) {
                self.label = UnsafeRawBufferPointer(rebasing: tag.dropFirst(6))
            }
            start = end + 1
        }
    }
}
