import PeerKit

/// All that the chat knows, in memory: accounts, conversations and messages. Who may do what is decided here; how it is asked
/// for, over REST or a WebSocket, is not known here.
struct Chat {
    struct Settings {
        /// The same id of the same sender in the same conversation is the same message.
        var deduplicates = true
        /// Members of a message that the chat does not know are kept and handed on.
        var keepsUnknown = true
        /// The longest text, in characters; nil if there is no limit.
        var textLimit: Int?
        /// Frames about messages are JSON in a string of another frame.
        var wrapsFrames = false
    }

    struct Conversation {
        var title: String?
        /// In the order of their coming.
        var members: [String]
        var messages: [Message] = []
    }

    /// Something that members of a conversation hear of.
    struct News {
        var to: [String]
        var frame: JSONValue
    }

    let settings: Settings
    private(set) var passwords: [String: String] = [:]
    private var tokens: [String: String] = [:]
    private(set) var conversations: [String: Conversation] = [:]
    private var files: [String: [UInt8]] = [:]
    /// What happened since it was asked for last.
    private var news: [News] = []
    private var lastNumber = 0
    /// Counts what happens to messages, for `/updates`.
    private(set) var position = 0

    init(_ settings: Settings) {
        self.settings = settings
    }

    mutating func takeNews() -> [News] {
        defer { news = [] }
        return news
    }

    private mutating func next(_ prefix: String) -> String {
        lastNumber += 1
        return "\(prefix)\(lastNumber)"
    }

    // MARK: Accounts

    mutating func register(_ user: String, _ password: String) throws(Refusal) {
        guard Self.isID(user), !password.isEmpty else { throw .invalid("user and password are needed") }
        guard passwords[user] == nil else { throw Refusal(409, "taken", "\(user) is somebody else") }
        passwords[user] = password
    }

    mutating func login(_ user: String, _ password: String) throws(Refusal) -> String {
        guard passwords[user] == password, !password.isEmpty else {
            throw Refusal(401, "unauthorized", "user or password is wrong")
        }
        let token = next("token-\(user)-")
        tokens[token] = user
        return token
    }

    mutating func logout(_ token: String) {
        tokens[token] = nil
    }

    func account(_ token: String?) throws(Refusal) -> String {
        guard let token, let user = tokens[token] else { throw Refusal(401, "unauthorized", "no valid token") }
        return user
    }

    // MARK: Conversations

    mutating func open(_ id: String?, title: String?, members: [String], by user: String) throws(Refusal) -> String {
        let id = id ?? next("c")
        guard Self.isID(id) else { throw .invalid("this is no id") }
        guard conversations[id] == nil else { throw Refusal(409, "taken", "there is a conversation \(id)") }
        let others = members.filter { $0 != user }
        for member in others where passwords[member] == nil { throw .notFound("nobody is called \(member)") }
        conversations[id] = Conversation(title: title, members: [user] + others)
        return id
    }

    func conversation(_ id: String, of user: String) throws(Refusal) -> Conversation {
        guard let conversation = conversations[id] else { throw .notFound("there is no conversation \(id)") }
        guard conversation.members.contains(user) else { throw .forbidden("\(user) is no member") }
        return conversation
    }

    mutating func entitle(_ id: String, _ title: String, by user: String) throws(Refusal) {
        _ = try conversation(id, of: user)
        conversations[id]?.title = title
        notify(id, ["type": "title", "conversation": .string(id), "title": .string(title), "sender": .string(user)])
    }

    mutating func add(_ member: String, to id: String, by user: String) throws(Refusal) {
        let now = try conversation(id, of: user)
        guard passwords[member] != nil else { throw .notFound("nobody is called \(member)") }
        guard !now.members.contains(member) else { return }
        conversations[id]?.members.append(member)
        notify(id, ["type": "joined", "conversation": .string(id), "user": .string(member)])
    }

    mutating func remove(_ member: String, from id: String, by user: String) throws(Refusal) {
        guard try conversation(id, of: user).members.contains(member) else { return }
        notify(id, ["type": "left", "conversation": .string(id), "user": .string(member)])
        conversations[id]?.members.removeAll { $0 == member }
    }

    /// Something that passes and is kept nowhere: typing, read, reaction.
    mutating func pass(_ type: String, _ members: JSONValue, in id: String, by user: String) throws(Refusal) {
        _ = try conversation(id, of: user)
        var frame = members
        (frame["type"], frame["conversation"], frame["sender"]) = (.string(type), .string(id), .string(user))
        notify(id, frame)
    }

    // MARK: Messages

    /// - Returns: The message, and whether it is new.
    mutating func post(
        _ body: JSONValue, in id: String, by user: String, at time: Int
    ) throws(Refusal) -> (message: Message, isNew: Bool) {
        let conversation = try conversation(id, of: user)
        guard let text = body["text"].string else { throw .invalid("text is missing") }
        if let limit = settings.textLimit, text.unicodeScalars.count > limit {
            throw Refusal(400, "too_long", "a text has \(limit) characters at most")
        }
        if case .string(let local) = body["id"] {
            guard Self.isID(local) else { throw .invalid("id is no id") }
            if settings.deduplicates,
                let earlier = conversation.messages.first(where: {
                    $0.sender == user && $0.fields["id"].string == local
                })
            {
                return (earlier, false)
            }
        }
        let message = Message(
            id: next("m"), conversation: id, sender: user, time: time, position: advance(),
            fields: settings.keepsUnknown ? Message.sent(body) : Message.known(body))
        conversations[id]?.messages.append(message)
        notify(id, message.frame("message"))
        return (message, true)
    }

    mutating func edit(_ message: String, _ body: JSONValue, in id: String, by user: String) throws(Refusal) {
        let index = try place(of: message, in: id, by: user)
        guard body["text"].string != nil else { throw .invalid("text is missing") }
        guard var edited = conversations[id]?.messages[index] else { return }
        edited.replace(with: settings.keepsUnknown ? Message.sent(body) : Message.known(body))
        edited.position = advance()
        conversations[id]?.messages[index] = edited
        notify(id, edited.frame("edited"))
    }

    mutating func delete(_ message: String, in id: String, by user: String) throws(Refusal) {
        let index = try place(of: message, in: id, by: user)
        conversations[id]?.messages.remove(at: index)
        notify(
            id,
            ["type": "deleted", "conversation": .string(id), "message_id": .string(message), "sender": .string(user)])
    }

    func message(_ message: String, in id: String, for user: String) throws(Refusal) -> Message {
        guard let found = try conversation(id, of: user).messages.first(where: { $0.id == message }) else {
            throw .notFound("there is no message \(message)")
        }
        return found
    }

    /// The last so many messages before that one, the oldest first.
    func history(_ id: String, before: String?, limit: Int, for user: String) throws(Refusal) -> [Message] {
        var messages = try conversation(id, of: user).messages[...]
        if let before {
            guard let end = messages.firstIndex(where: { $0.id == before }) else {
                throw .notFound("there is no message \(before)")
            }
            messages = messages[..<end]
        }
        return Array(messages.suffix(limit))
    }

    func search(_ text: String, for user: String) -> [Message] {
        conversations.values.filter { $0.members.contains(user) }.flatMap(\.messages)
            .filter { $0.fields["text"].string?.contains(text) == true }.sorted { $0.position < $1.position }
    }

    /// By conversation: what is new or edited since then.
    func updates(since: Int, for user: String) -> [String: [Message]] {
        conversations.filter { $0.value.members.contains(user) }
            .mapValues { $0.messages.filter { $0.position > since }.sorted { $0.position < $1.position } }
            .filter { !$0.value.isEmpty }
    }

    // MARK: Files

    mutating func keep(_ bytes: [UInt8]) -> String {
        let id = next("f")
        files[id] = bytes
        return id
    }

    func file(_ id: String) throws(Refusal) -> [UInt8] {
        guard let bytes = files[id] else { throw .notFound("there is no file \(id)") }
        return bytes
    }

    // MARK: Parts

    private mutating func notify(_ id: String, _ frame: JSONValue) {
        news.append(News(to: conversations[id]?.members ?? [], frame: frame))
    }

    private mutating func advance() -> Int {
        position += 1
        return position
    }

    private func place(of message: String, in id: String, by user: String) throws(Refusal) -> Int {
        let messages = try conversation(id, of: user).messages
        guard let index = messages.firstIndex(where: { $0.id == message }) else {
            throw .notFound("there is no message \(message)")
        }
        guard messages[index].sender == user else { throw .forbidden("it is somebody else's message") }
        return index
    }

    static func isID(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch UnicodeScalar(byte) {
                case "a"..."z", "A"..."Z", "0"..."9", "_", ".", "~", "-": true
                default: false
                }
            }
    }
}
