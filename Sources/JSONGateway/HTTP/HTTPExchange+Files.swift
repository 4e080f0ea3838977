// Files: an upload is sealed, and a download opened, as the bytes pass. The exchange decides, and the adapter has the
// sealer or the opener until the end.
//
// A download is asked for from its beginning, without `Range`, because the beginning names the key, and because many
// backends know no ranges. The gateway answers a range itself: it skips the chunks before it, and stops after it. What is
// not sealed passes; if its backend knows ranges, it is asked for once more, as the client did.
//
// A request for a file is sent without its body, which some clients write in every request.
//
// A form may have a text beside its files. Then the conversation is judged as for a text alone, before anything is sent, and
// the text is sealed when the form has come. It does not wait in the queue, which holds no files.
//
// Of a sealed file the backend makes no thumbnail. If the mapping names the whole file, a picture is shown in its place.

import Devices
import HTTPCodec
import NIOCore
import Protection
import Reports
import Vault

extension HTTPExchange {
    /// A file to send, its key not made yet.
    struct FileUpload: Sendable {
        let request: Request
        let client: Client
        /// The head for the backend, which says nothing of the file.
        let head: RequestHead
        let body: FileBody
        /// The message that shows the files; nil if another request makes it.
        var form: FormWrite?
    }

    /// A form with files and a text.
    struct FormWrite: Sendable {
        let request: WriteRequest
        /// The members of the conversation; nil if unknown.
        let members: [AccountID]?
        /// Nil if the members are unknown.
        let recipient: NamedRecipient?
        let forwarded: Forwarded
    }

    /// Where a body has its file.
    enum FileBody: Sendable {
        /// The body is the file.
        case whole(SealedFile.Description)
        /// The file is in a multipart form.
        case form(MultipartBoundary, [String: FilePlaces.Part])
    }

    /// A file that is asked for.
    struct FileDownload: Sendable {
        /// The client's request.
        let request: Request
        /// Nil if the backend needs no login for it.
        let client: Client?
        /// Whether the whole file was asked for in place of its thumbnail.
        var isWhole = false
    }

    // MARK: Uploads

    /// Begins an upload of an account whose policy demands protection.
    func upload(
        _ request: Request, _ client: Client, _ policy: Policy, _ actions: inout [ExchangeAction]
    ) -> State {
        // Whether a device has sealed it, nobody can tell.
        guard policy.sealsEndToGateway, let (head, body) = request.fileToSeal else {
            return refuse(.refused(.media), to: request.head, &actions)
        }
        // An empty file has nothing but its name.
        guard head.announcesBody else {
            actions.append(.passRequest(head))
            return .forwarding(Forwarded(request: request, credential: client.credential))
        }
        actions.append(.submit(.sealFile(SealFileJob(connection: connection, account: client.account))))
        return .sealingFile(FileUpload(request: request, client: client, head: head, body: body))
    }

    func seal(
        _ upload: FileUpload, _ key: Result<SealedFile.Key, OpenError>, _ actions: inout [ExchangeAction]
    ) -> State {
        guard case .success(let key) = key else { return refuse(.notStored, to: upload.request.head, &actions) }
        environment.tally.add(.sentGateway)
        let sealer: BodySealer =
            switch upload.body {
            case .whole(let description): BodySealer(file: SealedFile.Sealer(key, description))
            case .form(let boundary, let parts): BodySealer(form: FormSealer(key, boundary, parts))
            }
        actions.append(.sealRequest(upload.head, sealer))
        if let form = upload.form { return .sendingForm(form) }
        return .forwarding(Forwarded(request: upload.request, credential: upload.client.credential))
    }

    // MARK: Forms with a text

    /// Begins an upload with a text, where anything may be protected.
    func writeFiles(_ request: WriteRequest, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        askMembers(
            request, request.request.isSealableFile ? .withFiles : .unreadable(.refused(.media)), nil, now, &actions)
    }

    /// Seals the files of a form whose text is to be sealed.
    func seal(
        filesOf request: WriteRequest, _ members: [AccountID]?, _ recipient: NamedRecipient?,
        _ actions: inout [ExchangeAction]
    ) -> State {
        let client = request.client
        guard let (head, body) = request.request.fileToSeal, case .form = body else {
            return refuse(.refused(.media), to: request.head, recipient: recipient, &actions)
        }
        var sent = head
        sent.headers.set("Accept-Encoding", to: "identity")
        let forwarded = Forwarded(request: request.request, credential: client.credential, reader: client)
        let form = FormWrite(request: request, members: members, recipient: recipient, forwarded: forwarded)
        actions.append(.submit(.sealFile(SealFileJob(connection: connection, account: client.account))))
        return .sealingFile(
            FileUpload(request: request.request, client: client, head: sent, body: body, form: form))
    }

    /// Seals the texts of a form whose files are sent.
    func seal(_ texts: FormTexts, of form: FormWrite, _ actions: inout [ExchangeAction]) -> State {
        let match = form.request.match
        do throws(MessageFault) {
            guard let shape = match.route.request else { throw .noMessage }
            var outgoing = try OutgoingMessage(shape.document(texts), [shape], target: match.target)
            // The conversation that was judged is the one in the head.
            guard outgoing.conversation == match.conversation else { throw .noConversation(at: 0) }
            outgoing.fillMentions(form.members, besides: form.request.account)
            let ticket = environment.nextTicket()
            actions.append(
                .submit(
                    .seal(
                        SealMessageJob(
                            connection: connection, ticket: ticket, sender: form.request.account,
                            conversation: .room(outgoing.conversation), plaintext: try outgoing.plaintext(),
                            maximumLength: outgoing.longestEnvelope))))
            return .sealingTexts(form, outgoing, ticket: ticket, answer: nil)
        } catch {
            return refuse(.unreadable(error), to: form.request.head, recipient: form.recipient, &actions)
        }
    }

    /// Sends the rest of a form.
    ///
    /// - Parameter answer: the backend's, if it has not waited for the rest.
    func finish(
        _ form: FormWrite, _ outgoing: OutgoingMessage, _ sealed: SealedEnvelope, _ answer: ResponseHead?,
        _ actions: inout [ExchangeAction]
    ) -> State {
        var forwarded = form.forwarded
        forwarded.sealed = (.room(outgoing.conversation), sealed.message)
        if let answer { return answered(forwarded, answer, &actions) }
        do throws(MessageFault) {
            actions.append(.endRequest(try outgoing.sealed(sealed.bytes)))
            return .forwarding(forwarded)
        } catch {
            return refuse(.unreadable(error), to: form.request.head, recipient: form.recipient, &actions)
        }
    }

    // MARK: Downloads

    /// Begins the download of a file.
    ///
    /// - Parameter client: nil if the backend needs no login for it.
    func download(_ request: Request, _ client: Client?, _ actions: inout [ExchangeAction]) -> State {
        let file = FileDownload(request: request, client: client)
        actions.append(file.asking(file.head(request.head.target)))
        return .askingForFile(file)
    }

    func answered(_ file: FileDownload, _ head: ResponseHead, _ actions: inout [ExchangeAction]) -> State {
        let method = file.request.head.method
        switch head.status {
        case 401:
            if let client = file.client { environment.credentials.forget(client.credential.digest) }
            actions.append(.passResponse(head))
            return .over
        case 200 where method == "HEAD":
            // The length is that of the sealed file, and only its bytes tell whether it is sealed.
            var head = head
            head.headers.remove("Content-Length")
            actions.append(.passResponse(head))
            return .over
        case 200 where head.headers.tokens("Content-Encoding").allSatisfy({ $0 == "identity" }):
            actions.append(.collectBeginning(count: SealedFile.beginningSize))
            return .beginningFile(file, head)
        case 400, 404, 413, 415, 422:
            guard !file.isWhole, method == "GET", let target = file.wholeTarget else { break }
            var whole = file
            whole.isWhole = true
            actions.append(file.asking(file.head(target)))
            return .askingForFile(whole)
        default: break
        }
        if file.isWhole, head.status != 304 { return askAsTheClientDid(file, &actions) }
        actions.append(.passResponse(head))
        return .over
    }

    func begun(
        _ file: FileDownload, _ head: ResponseHead, _ beginning: ByteBuffer, _ actions: inout [ExchangeAction]
    ) -> State {
        guard beginning.withUnsafeReadableBytes({ SealedFile.isSealed($0) }) else {
            let knowsRanges = head.headers.tokens("Accept-Ranges").contains("bytes")
            if file.isWhole || (knowsRanges && file.request.head.headers.first("Range") != nil) {
                return askAsTheClientDid(file, &actions)
            }
            actions.append(.passResponse(head))
            return .over
        }
        guard beginning.readableBytes >= SealedFile.beginningSize,
            let header = try? SealedFile.Header(Array(beginning.readableBytesView.prefix(SealedFile.headerSize)))
        else { return isUnreadable(file, .malformed, &actions) }
        actions.append(.submit(.openFile(OpenFileJob(connection: connection, header: header))))
        return .openingFile(file, head, beginning)
    }

    func open(
        _ file: FileDownload, _ head: ResponseHead, _ beginning: ByteBuffer,
        _ key: Result<SealedFile.Key, OpenError>, _ actions: inout [ExchangeAction]
    ) -> State {
        let found: SealedFile.Key
        do throws(OpenError) { found = try key.get() } catch { return isUnreadable(file, error.reason, &actions) }
        let bytes = Array(beginning.readableBytesView.prefix(SealedFile.beginningSize))
        guard let description = try? SealedFile.Opener(found).description(in: bytes) else {
            return isUnreadable(file, .notAuthentic, &actions)
        }
        var size: Int?
        if let sealed = head.headers.first("Content-Length").flatMap({ Int($0) }) {
            size = SealedFile.size(ofSealed: sealed)
            guard size != nil else { return isUnreadable(file, .notAuthentic, &actions) }
        }
        if file.isWhole {
            let isPicture = description.type?.lowercased().hasPrefix("image/") ?? false
            guard isPicture, let size, size <= settings.answerLimit else { return askAsTheClientDid(file, &actions) }
        }
        environment.tally.add(.openedGateway)
        var head = head
        head.describe(description, hasRanges: size != nil)
        switch file.isWhole ? .none : ByteRange(of: file.request.head.headers, in: head, size: size) {
        case .none:
            actions.append(.openResponse(head, SealedFile.Opener(found), length: size))
            return .over
        case .unsatisfiable(let size):
            head = ResponseHead(416, headers: ["Content-Range": "bytes */\(size)"])
            return respondItself(head, ByteBuffer(), to: file.request.head, &actions)
        case .part(let range, let size):
            (head.status, head.reason) = (206, "Partial Content")
            head.headers.set("Content-Range", to: "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(size)")
            actions.append(.openResponse(head, SealedFile.Opener(found, range: range), length: range.count))
            return .over
        }
    }

    /// Forwards the client's request and its answer, because they do not concern a sealed file.
    private func askAsTheClientDid(_ file: FileDownload, _ actions: inout [ExchangeAction]) -> State {
        actions.append(file.asking(file.request.head))
        return .forwarding(Forwarded(request: file.request, credential: file.client?.credential))
    }

    private func isUnreadable(
        _ file: FileDownload, _ failure: OpenFailure, _ actions: inout [ExchangeAction]
    ) -> State {
        environment.tally.add(TallyKind(failure))
        let no: ExchangeRefusal =
            switch failure {
            case .forgotten: .fileForgotten
            case .store, .notCommitted: .answerUnreadable
            default: .fileUnreadable
            }
        return refuse(no, to: file.request.head, &actions)
    }
}

extension HTTPExchange.Request {
    /// Whether the body is one file as it is, and says so.
    var isSealableFile: Bool { fileToSeal != nil }

    /// The head and the description of a file to seal; nil if it comes in a form that is not sealed.
    ///
    /// The head says nothing of the file but its size.
    var fileToSeal: (RequestHead, HTTPExchange.FileBody)? {
        var head = head
        let types = head.headers["Content-Type"]
        let type = types.first?.lowercased() ?? ""
        var form: HTTPExchange.FileBody?
        if head.headers.describeParts {
            guard let parts = match?.route.file.parts, let boundary = try? MultipartBoundary(head.headers) else {
                return nil
            }
            form = .form(boundary, parts)
        }
        guard types.count < 2, !type.hasPrefix("application/x-www-form-urlencoded"),
            head.headers.tokens("Content-Encoding").allSatisfy({ $0 == "identity" }),
            head.headers.first("Content-Range") == nil
        else { return nil }
        if let length = head.headers.first("Content-Length") {
            guard let length = Int(length), SealedFile.sealedSize(of: length) != nil else { return nil }
        }
        var name: String?
        if let query = match?.route.file.name, let text = head.query {
            switch RequestQuery(text)[query] {
            case .absent: break
            case .single(let value):
                name = value
                let rest = text.split(separator: "&").filter { RequestQuery($0)[query] == .absent }
                head.target = head.path + (rest.isEmpty ? "" : "?" + rest.joined(separator: "&"))
            // The backend could read a name that the gateway does not find.
            case .ambiguous: return nil
            }
        }
        if form == nil { head.headers.set("Content-Type", to: "application/octet-stream") }
        for name in ["Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location"] {
            head.headers.remove(name)
        }
        head.headers.removeDigests()
        return (head, form ?? .whole(SealedFile.Description(type: types.first, name: name)))
    }
}

extension RequestHead {
    /// Whether the request asks for a file. Its body, if it has one, has no meaning. RFC 9110 section 9.3.1.
    var asksForFile: Bool { (method == "GET" || method == "HEAD") && !Mapping.isRewritten(headers) }
}

extension HTTPExchange.FileDownload {
    /// The request for a file from its beginning and without an encoding.
    fileprivate func head(_ target: String) -> RequestHead {
        var head = request.head
        head.target = target
        head.headers.remove("Range")
        head.headers.remove("If-Range")
        head.headers.set("Accept-Encoding", to: "identity")
        return head
    }

    /// Sends a request for the file, without the body of the client's.
    fileprivate func asking(_ head: RequestHead) -> ExchangeAction {
        request.head.announcesBody ? .send(head, ByteBuffer()) : .passRequest(head)
    }

    /// The target of the whole file, with the credential in the client's query; nil if the answer is no thumbnail.
    fileprivate var wholeTarget: String? {
        guard let match = request.match, var target = match.route.file.whole else { return nil }
        for (name, value) in match.target.captures.all { target = Mapping.target(target, name, value) }
        let parts =
            request.head.query?.split(separator: "&").filter { client?.credential.isQueryPart($0) == true } ?? []
        for part in parts { target += (target.contains("?") ? "&" : "?") + part }
        return target
    }
}

/// The part of a file that a request asks for. RFC 9110 section 14.
enum ByteRange: Equatable {
    /// The whole file: no range, several, or one for another version of the file.
    case none
    case part(Range<Int>, of: Int)
    case unsatisfiable(size: Int)

    /// - Parameter size: that of the file; nil if it is unknown.
    init(of request: HeaderFields, in answer: ResponseHead, size: Int?) {
        self = .none
        let values = request["Range"]
        guard let size, values.count == 1, values[0].utf8.count < 64, values[0].lowercased().hasPrefix("bytes=") else {
            return
        }
        let condition = request["If-Range"]
        if let wanted = condition.first {
            // A weak tag is equal to none. RFC 9110 section 13.1.5.
            let tags = answer.headers["ETag"] + answer.headers["Last-Modified"]
            guard condition.count == 1, !wanted.hasPrefix("W/"), tags.contains(wanted) else { return }
        }
        let ends = values[0].dropFirst("bytes=".count).split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2, ends.allSatisfy({ $0.utf8.allSatisfy { 0x30...0x39 ~= $0 } }) else { return }
        // A number that is too large is beyond the file.
        let numbers = ends.map { $0.isEmpty ? nil : Int($0) ?? Int.max }
        switch (numbers[0], numbers[1]) {
        case (nil, nil): return
        case (nil, let count?):
            self = count > 0 && size > 0 ? .part(max(0, size - count)..<size, of: size) : .unsatisfiable(size: size)
        case (let first?, let last):
            if let last, last < first { return }
            self =
                first < size
                ? .part(first..<min(size - 1, last ?? .max) + 1, of: size) : .unsatisfiable(size: size)
        }
    }
}

extension HeaderFields {
    /// Removes checksums of the body.
    fileprivate mutating func removeDigests() {
        for name in ["Content-MD5", "Digest", "Content-Digest", "Repr-Digest"] { remove(name) }
    }
}

extension ResponseHead {
    /// Says of an opened file what its sender's client has said. Its entity tag stays: one sealed file is one file.
    ///
    /// The backend has seen no type, so it calls the file an attachment, and browsers do not run what is in it.
    fileprivate mutating func describe(_ description: SealedFile.Description, hasRanges: Bool) {
        headers.removeDigests()
        headers.remove("Content-Encoding")
        headers.set("Content-Type", to: description.type ?? "application/octet-stream")
        headers.set("X-Content-Type-Options", to: "nosniff")
        if hasRanges { headers.set("Accept-Ranges", to: "bytes") } else { headers.remove("Accept-Ranges") }
        var disposition = headers.first("Content-Disposition") ?? "attachment"
        if disposition.lowercased().hasPrefix("inline") { disposition = "attachment" + disposition.dropFirst(6) }
        // The backend's name for a file in a form is the gateway's.
        if disposition.contains(FormSealer.fileName) { disposition = "attachment" }
        guard let name = description.name, !disposition.lowercased().contains("filename") else {
            return headers.set("Content-Disposition", to: disposition)
        }
        // RFC 6266 section 4.1, RFC 8187 section 3.2.
        headers.set("Content-Disposition", to: "\(disposition); filename*=utf-8''\(PercentCoding.segment(name))")
    }
}
