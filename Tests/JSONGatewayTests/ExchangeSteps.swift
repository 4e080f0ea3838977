import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection

/// One exchange of Alice's, step by step.
struct ExchangeSteps {
    let world: JSONWorld
    private var exchange: HTTPExchange

    init(_ world: JSONWorld) {
        self.world = world
        exchange = HTTPExchange(environment: world.environment, connection: ConnectionID(5))
    }

    mutating func take(_ event: ExchangeEvent) -> [ExchangeAction] {
        var actions: [ExchangeAction] = []
        exchange.take(event, at: world.now, &actions)
        return actions
    }

    var stage: HTTPExchange.Stage { exchange.stage }

    /// Begins a request, its account known.
    mutating func begin(_ method: String, _ target: String, fields: HeaderFields = [:]) -> [ExchangeAction] {
        var head = RequestHead(method, target, headers: fields)
        head.headers.add("Authorization", "Bearer t-alice")
        let actions = take(.request(head))
        guard case .look(let lookup) = actions.first,
            let (head, body) = world.backend.answer(lookup.head, ByteBuffer())
        else { return actions }
        return take(.found(lookup.id, head, body))
    }

    /// What becomes of an answer: its status, and whether it is the backend's as it came.
    mutating func answer(_ head: ResponseHead, _ body: ByteBuffer) -> (status: Int, isAsItCame: Bool)? {
        var actions = take(.response(head))
        if case .collectResponse = actions.last { actions = take(.responseBody(body)) }
        return switch actions.last {
        case .passResponse(let head): (head.status, true)
        case .respond(let head, let sent), .deliver(let head, let sent, hiding: _): (head.status, sent == body)
        default: nil
        }
    }
}
